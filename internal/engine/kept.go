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
	progress *storage.Progress
	result   []byte
}

// kept returns the progress, nil if there is none; the attempt is locked.
func (a *Attempt) kept() *storage.Progress {
	if a.keeps == nil || a.keeps.progress == nil || a.of.cfg.lacking(storage.FeatureKept) != nil {
		return nil
	}
	p := *a.keeps.progress
	p.Note = cut(p.Note, maxNote)
	return &p
}

// keep returns where to note what is kept, unless the attempt can say nothing more of its job;
// the attempt is locked.
func (a *Attempt) keep() (*keeps, error) {
	if a.over || a.committed {
		return nil, ErrFinished
	}
	if a.keeps == nil {
		a.keeps = &keeps{}
	}
	return a.keeps, nil
}

// where returns a checkpoint with the progress so far, unless the attempt has ended. A handler
// that is to stop can still keep one: then its context has ended, and counts no more.
func (a *Attempt) where(ctx context.Context, data []byte) (context.Context, storage.Checkpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.committed {
		return ctx, storage.Checkpoint{}, ErrFinished
	}
	if a.of.ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	a.placed.Store(true)
	return ctx, storage.Checkpoint{Lease: a.of.job.Lease, Data: data, Progress: a.kept()}, nil
}

// Checkpoint keeps where the job has got to. It is durable when Checkpoint returns.
func (a *Attempt) Checkpoint(ctx context.Context, data []byte) error {
	ctx, c, err := a.where(ctx, data)
	if err != nil {
		return err
	}
	r, err := a.of.cfg.Store.Checkpoint(ctx, c)
	return a.explained(ctx, errors.Join(err, Refused(r)))
}

// CheckpointTx keeps where the job has got to in a transaction of the application, or of the
// store. After an error that cannot commit.
func (a *Attempt) CheckpointTx(ctx context.Context, store storage.TxEnqueuer, tx any, data []byte) error {
	ctx, c, err := a.where(ctx, data)
	if err != nil {
		store.SpoilTx(tx, err)
		return err
	}
	r, err := store.CheckpointTx(ctx, tx, c)
	return a.explained(ctx, errors.Join(err, Refused(r)))
}

// SetResult notes what is kept with the job if it is done.
func (a *Attempt) SetResult(data []byte) error {
	if err := a.of.cfg.lacking(storage.FeatureKept); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending {
		return ErrFinished // its end has no result
	}
	k, err := a.keep()
	if err == nil {
		k.result = data
	}
	return err
}

// Progress notes how far the job has got. It is shown within about a second.
func (a *Attempt) Progress(done, total int64, note string) {
	p := storage.Progress{Done: done, Total: total, Note: note, At: a.of.cfg.Clock.Now()}
	a.mu.Lock()
	k, err := a.keep()
	if err == nil && k.progress == nil {
		k.progress = &p
	} else if err == nil {
		*k.progress = p
	}
	a.mu.Unlock()
	if l := a.of.loop; err == nil && l.chores.show.moved.note() {
		l.mail.ring()
	}
}

// brings has f bring what an attempt that ends so has said of its job.
func (a *Attempt) brings(f *storage.Finish) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.Outcome == storage.OutcomeDone {
		a.ending = true
		if a.follows != nil {
			f.Then = a.follows.then
		}
		if a.keeps != nil {
			f.Result = a.keeps.result
		}
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

// reopen has an attempt go on whose transaction was rolled back.
func (a *Attempt) reopen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.ending = false, false
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
// which lives until the outcome of the last of them is written. The headers of a job that dies
// stay, as what is enqueued with its death takes some of them.
func drop(job *storage.Leased, dies bool) {
	job.Args, job.Policy, job.Checkpoint = nil, nil, nil
	if !dies {
		job.Headers = nil
	}
}
