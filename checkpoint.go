package errand

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// maxKept bounds a checkpoint and a result, in bytes of JSON.
const maxKept = 64 << 10

// What has become of a job, as [Result] and [Await] say, beside [ErrCancelled] and
// [ErrNotFound].
var (
	// ErrNoResult: the job has no result, or has not ended.
	ErrNoResult = errors.New("errand: job has no result")
	// ErrDead: the job is in the dead letters.
	ErrDead = errors.New("errand: job is dead")
	// ErrExpired: the job was not started in time.
	ErrExpired = errors.New("errand: job has expired")
)

// Progress is how far a job has got: Done of Total, which is 0 if that is not known. Note is
// what the handler says besides, and At when it has said so, see [Job.Progress].
type Progress = storage.Progress

// JobProgress is the progress of a job that runs.
type JobProgress struct {
	Job ID `json:"job"`
	Progress
}

// Resume reads into v, a pointer, the last checkpoint of the job from before this attempt. It
// reports whether there is one; if not, v stays as it is. If the checkpoint is not valid JSON
// for v, the error is of class decode: the attempt fails with it, as for args.
func (j *Job[A]) Resume(v any) (found bool, err error) {
	if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer || p.IsNil() {
		return false, &FieldError{Field: "v", Value: fmt.Sprintf("%T", v), Limit: "must be a pointer that is not nil"}
	}
	if j.checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(j.checkpoint, v); err != nil {
		return false, &engine.DecodeError{Err: fmt.Errorf("checkpoint: %w", err)}
	}
	return true, nil
}

// Checkpoint keeps v, as at most 64 KiB of JSON, in place of the checkpoint before: the next
// attempt has it by [Job.Resume]. It is as durable when Checkpoint returns as an enqueue, and
// shares its commit with the other calls of that moment.
//
// A checkpoint stays with the job through retries, snoozes, crashes, stops, holds and its
// death, until the job is done, cancelled or expired, or its args are changed. A redrive
// keeps it unless [RedriveOptions].FromStart is set. With a checkpoint that differs from the
// one before, the crashes of the job count anew, up to 100 times: a job that makes progress
// may crash more often.
//
// A handler whose context has ended, as its worker stops, can still call Checkpoint before it
// returns, also with that context. A full disk keeps out new jobs before it keeps out
// checkpoints.
//
// Checkpoint returns [ErrLeaseLost] and [ErrCancelled] as [Job.Finish] does: then nothing was
// kept. It returns [ErrFinished] if the job was completed before, or if the handler has
// returned, and [ErrNoAttempt] for a job that no worker runs. Inside of [Queue.Tx] and Finish
// it returns [ErrBusy]: there, call [Job.CheckpointTx].
func (j *Job[A]) Checkpoint(ctx context.Context, v any) error {
	if j.attempt == nil {
		return ErrNoAttempt
	}
	data, err := keptJSON("checkpoint", v)
	if err != nil {
		return err
	}
	return j.attempt.Checkpoint(ctx, data)
}

// CheckpointTx is [Job.Checkpoint] in a transaction, of [Queue.Tx] or of the application on
// the queue's file: what else is written in it and the checkpoint are committed together, or
// neither is. After an error tx cannot be committed any more, as with [Job.CompleteTx].
func (j *Job[A]) CheckpointTx(ctx context.Context, tx *sql.Tx, v any) error {
	in, err := j.inside(tx)
	if err != nil {
		return err
	}
	return in.Checkpoint(ctx, v)
}

// keptJSON returns a checkpoint or a result as JSON.
func keptJSON(field string, v any) ([]byte, error) {
	var f faults
	data := f.json(field, v)
	if len(data) > maxKept {
		f.field(field, len(data), fmt.Sprintf("must be at most %d bytes of JSON", maxKept))
	}
	return data, f.err()
}

// Progress says how far the job has got: done of total, which is 0 if that is not known, and a
// note of which the first 256 bytes are shown. It can be called as often as the handler likes:
// it writes nothing to the database. [Queue.Workers] and [Queue.Job] show the last one, about a
// second later, in all processes. The last one is kept with a checkpoint, and when the job is
// done, cancelled or dead; not when the attempt fails and is retried. Progress does nothing for
// a job that no worker runs, or after the handler has returned.
func (j *Job[A]) Progress(done, total int64, note string) {
	if j.attempt != nil {
		j.attempt.Progress(done, total, note)
	}
}

// SetResult has v, as at most 64 KiB of JSON, be kept with the job if it is done by this
// attempt: see [Result] and [Await]. A later call replaces it.
//
// It returns a [FieldError] if v is too large, or if the finished jobs of the lane are not
// kept, see [Options].Retention: nobody could read the result then. It returns [ErrFinished]
// and [ErrNoAttempt] as [Job.Then] does. On a full disk a job may end without its result, see
// [JobInfo].Error. Call it before [Job.CompleteTx], whose transaction
// keeps the result.
func (j *Job[A]) SetResult(v any) error {
	if j.attempt == nil {
		return ErrNoAttempt
	}
	data, err := keptJSON("result", v)
	if err != nil {
		return err
	}
	q := j.attempt.Owner().(*Queue)
	kept, err := q.keeps(context.WithoutCancel(j.attempt.Context()), Lane{Queue: j.Queue, Kind: j.Kind})
	if err != nil {
		return err
	}
	if !kept {
		return &FieldError{Field: "result", Value: len(data), Limit: fmt.Sprintf("must not be set: finished jobs of %s are not kept", laneText(j.Queue, j.Kind))}
	}
	return j.attempt.SetResult(data)
}

// keeps reports whether the finished jobs of a lane are kept for a time.
func (q *Queue) keeps(ctx context.Context, lane Lane) (bool, error) {
	all, err := q.store.Settings(ctx)
	set := storage.SettingOf(all, lane, storage.SettingRetention)
	return cmp.Or(set, int64(q.opts.Retention)) > 0, err
}

// Result returns what the handler of a job that is done has passed to [Job.SetResult]. For a
// job without a result, or one that has not ended, the error is [ErrNoResult]; for one that
// ended otherwise [ErrDead], [ErrCancelled] or [ErrExpired].
func Result[R any](info JobInfo) (r R, err error) {
	switch info.State {
	case Done:
		if info.Result == nil {
			return r, noResult(info)
		}
		if err = json.Unmarshal(info.Result, &r); err != nil {
			err = fmt.Errorf("errand: result of job %v: %w", info.ID, err)
		}
		return r, err
	case Dead:
		return r, fmt.Errorf("%w: job %v, %s: %s", ErrDead, info.ID, info.Reason, info.Error)
	case Cancelled:
		return r, fmt.Errorf("%w: job %v", ErrCancelled, info.ID)
	case Expired:
		return r, fmt.Errorf("%w: job %v", ErrExpired, info.ID)
	}
	return r, fmt.Errorf("%w: job %v is %s", ErrNoResult, info.ID, info.State)
}

// noResult says why a job that is done has no result, if that is known.
func noResult(info JobInfo) error {
	if info.Error != "" {
		return fmt.Errorf("%w: job %v: %s", ErrNoResult, info.ID, info.Error)
	}
	return fmt.Errorf("%w: job %v", ErrNoResult, info.ID)
}

// Await waits until a job has ended, and returns its [Result]. It returns [ErrNotFound] for a
// job that there is not, or not any more, as its lane keeps no finished jobs: also for one that
// was enqueued in a transaction which is not yet committed. It returns the error of ctx if that
// ends first.
//
// It learns of the end at once if a worker of this process ends the job, and otherwise within
// about a second. All calls that wait share one look at their jobs. Errors of the store, such
// as [ErrClosed], end the wait.
//
// A handler that awaits another job keeps its place in the worker meanwhile. If all places are
// taken by such handlers, none of them ever ends: have the job enqueued by [Job.Then] instead,
// or leave jobs that are awaited to another worker.
func Await[R any](ctx context.Context, q *Queue, id ID) (R, error) {
	info, err := q.ended(ctx, id)
	if err != nil {
		var none R
		return none, err
	}
	return Result[R](info)
}

// ended waits until a job has ended.
func (q *Queue) ended(ctx context.Context, id ID) (JobInfo, error) {
	w, err := q.awaits.add(q, id)
	if err != nil {
		return JobInfo{}, err
	}
	defer q.awaits.remove(id, w)
	for {
		r, err := q.store.Job(ctx, id)
		if err != nil || !r.EndedAt.IsZero() {
			return jobInfoOf(&r, err)
		}
		select {
		case <-w:
		case <-ctx.Done():
			return JobInfo{}, ctx.Err()
		}
	}
}

// lookEvery is how often it is looked at most whether other processes have ended jobs that
// somebody awaits.
const lookEvery = 100 * time.Millisecond

// awaits are those who wait for the end of jobs. While there are any, one goroutine looks at
// all of these jobs after commits.
type awaits struct {
	some atomic.Bool // else a commit costs nothing

	mu   sync.Mutex
	of   map[ID][]chan struct{} // each holds one
	poke chan struct{}          // holds one
	stop func()                 // ends the looking
}

// endings are the events that end jobs.
var endings = EventFilter{Types: []EventType{EventDone, EventCancelled, EventExpired, EventDead, EventEvicted, EventDeadEvicted}}

// add adds one who waits, who is told by the result.
func (a *awaits) add(q *Queue, id ID) (chan struct{}, error) {
	w := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) == 0 {
		if err := a.begin(q); err != nil {
			return nil, err
		}
	}
	a.of[id] = append(a.of[id], w)
	return w, nil
}

// begin begins to look; a is locked.
func (a *awaits) begin(q *Queue) error {
	s := &Subscription{events: &q.events, filter: endings, hook: a.tell}
	if !q.events.add(s) {
		return ErrClosed
	}
	poke, done := make(chan struct{}, 1), make(chan struct{})
	a.of, a.poke = map[ID][]chan struct{}{}, poke
	unlisten := func() {}
	if n, ok := q.store.(storage.Notifier); ok {
		unlisten = n.Notify(func(storage.Event) { ring(poke) })
	}
	go a.look(q, poke, done)
	a.stop = func() {
		s.Close()
		unlisten()
		close(done)
	}
	a.some.Store(true)
	return nil
}

// look tells those whose jobs have ended, after each poke, until done is closed. It looks once a
// second besides: no store tells of all ends, such as those in other programs' transactions.
func (a *awaits) look(q *Queue, poke, done chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-poke:
		case <-tick.C:
		case <-done:
			return
		}
		ids := a.ids()
		states, err := q.store.States(context.Background(), ids)
		for i, id := range ids {
			if err != nil || states[i] == "" || !isLive(states[i]) {
				a.wake(id) // after an error each finds out for itself
			}
		}
		pause := time.NewTimer(lookEvery)
		select {
		case <-pause.C:
		case <-done:
			pause.Stop()
			return
		}
	}
}

// isLive reports whether a job in a state has not ended.
func isLive(s State) bool { return s == Scheduled || s == Ready || s == Running || s == Blocked }

// ids returns the jobs that somebody awaits.
func (a *awaits) ids() (all []ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.of {
		all = append(all, id)
	}
	return all
}

// tell takes an event.
func (a *awaits) tell(e *Event) { a.wake(e.ID) }

// wake has those look who wait for a job.
func (a *awaits) wake(id ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.of[id] {
		ring(w)
	}
}

// changed has all be looked at: some jobs may have ended of which no event tells.
func (a *awaits) changed() {
	if !a.some.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.poke != nil {
		ring(a.poke)
	}
}

// remove removes one who waits.
func (a *awaits) remove(id ID, w chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, o := range a.of[id] {
		if o == w {
			a.of[id] = append(a.of[id][:i:i], a.of[id][i+1:]...)
			break
		}
	}
	if len(a.of[id]) == 0 {
		delete(a.of, id)
	}
	if len(a.of) == 0 {
		a.some.Store(false)
		a.stop()
		a.poke = nil
	}
}

// close has all find out that the queue is closed.
func (a *awaits) close() {
	for _, id := range a.ids() {
		a.wake(id)
	}
}

// ring fills a channel that holds one.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// progress returns how far a job has got that runs, as far as a worker shows it, or else as was
// kept.
func (q *Queue) progress(ctx context.Context, id ID, was *Progress) *Progress {
	all, err := q.Workers(ctx)
	if err != nil {
		return was // a store that shows nothing, or cannot now
	}
	for i := range all {
		for _, p := range all[i].Progress {
			if p.Job == id && (was == nil || p.At.After(was.At)) {
				was = new(p.Progress)
			}
		}
	}
	return was
}
