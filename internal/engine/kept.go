package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/errandq/errand/storage"
)

const (
	// maxNote bounds the note of a progress.
	maxNote = 256
	// maxShown bounds what an engine shows of the progress of its jobs.
	maxShown = 64 << 10
)

// keeps is what a handler has said of its job that is kept beside its end.
type keeps struct {
	progress storage.Progress // zero At: none
	result   []byte
}

// kept returns the progress, nil if there is none; the attempt is locked.
func (k *keeps) kept() *storage.Progress {
	if k.progress.At.IsZero() {
		return nil
	}
	p := k.progress
	p.Note = cut(p.Note, maxNote)
	return &p
}

// ended reports whether an attempt can say nothing more of its job; the attempt is locked.
func (a *Attempt) ended() bool { return a.over || a.committed || a.ending }

// where returns a checkpoint with the progress so far, unless the attempt has ended.
func (a *Attempt) where(data []byte) (c storage.Checkpoint, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended() {
		return c, ErrFinished
	}
	return storage.Checkpoint{Lease: a.of.job.Lease, Data: data, Progress: a.kept()}, nil
}

// Checkpoint keeps where the job has got to. It is durable when Checkpoint returns.
func (a *Attempt) Checkpoint(ctx context.Context, data []byte) error {
	c, err := a.where(data)
	if err != nil {
		return err
	}
	r, err := a.of.cfg.Store.Checkpoint(ctx, c)
	return a.caused(ctx, errors.Join(err, a.refusal(r)))
}

// CheckpointTx keeps where the job has got to in a transaction of the application, or of the
// store. After an error that cannot commit.
func (a *Attempt) CheckpointTx(ctx context.Context, store storage.TxEnqueuer, tx any, data []byte) error {
	c, err := a.where(data)
	if err != nil {
		store.SpoilTx(tx, err)
		return err
	}
	r, err := store.CheckpointTx(ctx, tx, c)
	return a.caused(ctx, errors.Join(err, a.refusal(r)))
}

// SetResult notes what is kept with the job if it is done.
func (a *Attempt) SetResult(data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended() {
		return ErrFinished
	}
	a.result = data
	return nil
}

// Progress notes how far the job has got. It is shown within about a second.
func (a *Attempt) Progress(done, total int64, note string) {
	p := storage.Progress{Done: done, Total: total, Note: note, At: a.of.cfg.Clock.Now()}
	a.mu.Lock()
	said := !a.ended()
	if said {
		a.progress = p
	}
	a.mu.Unlock()
	if l := a.of.loop; said && l.chores.show.moved.note() {
		l.mail.ring()
	}
}

// brings has f bring what an attempt that ends so has said of its job.
func (a *Attempt) brings(f *storage.Finish) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.Outcome == storage.OutcomeDone {
		a.ending = true
		f.Then, f.Result = a.then, a.result
	}
	if f.Progress = a.kept(); f.Spent != nil {
		f.Spent.Progress = f.Progress
	}
}

// undo has an attempt go on that was to end in a transaction, unless that can still commit.
func (a *Attempt) undo() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ending = a.open
}

// moves is whether jobs have said how far they have got.
type moves struct {
	unseen atomic.Bool // since the last look
	any    bool        // ever; it belongs to the loop
}

// note reports whether the loop has to be told.
func (m *moves) note() bool { return !m.unseen.Load() && m.unseen.CompareAndSwap(false, true) }

// progressDoc is how far a job has got, as an engine shows it.
type progressDoc struct {
	Job storage.ID `json:"job"`
	storage.Progress
}

// progress returns how far the jobs have got that run, as far as there is room, and whether
// some have said more since the last look.
func (l *loop) progress() (all []progressDoc, moved bool) {
	m := &l.chores.show.moved
	moved = m.unseen.Swap(false)
	if m.any = m.any || moved; !m.any {
		return nil, false
	}
	room := maxShown
	for _, a := range l.leases.held {
		if p := a.own.said(); p != nil && a.running {
			if room -= maxNote; room < 0 {
				break
			}
			p.At = p.At.UTC()
			all = append(all, progressDoc{a.job.ID, *p})
		}
	}
	return all, moved
}

// said is kept for who has not locked the attempt.
func (a *Attempt) said() *storage.Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept()
}

// drop frees the large fields of a job. The jobs of one exchange lie in one slice,
// which lives until the outcome of the last of them is written.
func drop(job *storage.Leased) {
	job.Args, job.Headers, job.Policy, job.Checkpoint = nil, nil, nil, nil
}
