package errand

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// OnDead enqueues a job when another one dies, in the transaction of that death: for each
// death there is exactly one, whatever happens to the process. Its args are a
// [DeadNotice], and it is a job as any other, with a policy of its kind.
//
// The OnDead of a kind goes before that of a queue. Jobs of the kinds that an OnDead of
// this process names have no notice when they die, so that no chain is endless. The job
// does not go through [Options].Middleware.
type OnDead struct {
	// Kind is the kind of the job. If empty, "errand.dead", the kind of [DeadNotice].
	Kind string
	// Queue is the queue of the job. If empty, "default".
	Queue string
}

const kindDead = "errand.dead"

// DeadNotice says which job has died; see [OnDead]. A type that embeds DeadNotice and has
// a Kind of its own is for notices of that kind.
type DeadNotice struct {
	ID     ID     `json:"id"`
	Queue  string `json:"queue"`
	OfKind string `json:"kind"`
	Reason Reason `json:"reason"`
	// Error is the last error, as that of the dead letter.
	Error string `json:"error,omitempty"`
	// Attempt counts the runs of the handler.
	Attempt   int       `json:"attempt"`
	CreatedAt time.Time `json:"created_at"`
	DiedAt    time.Time `json:"died_at"`
}

// Kind returns "errand.dead".
func (DeadNotice) Kind() string { return kindDead }

// kind and queue return the names with their defaults.
func (o *OnDead) kind() string  { return cmp.Or(o.Kind, kindDead) }
func (o *OnDead) queue() string { return cmp.Or(o.Queue, defaultQueue) }

func (f *faults) onDead(field string, o *OnDead, options *Options, kinds ...string) {
	if o == nil {
		return
	}
	f.add(checkName(field+".kind", o.kind()))
	f.queue(field+".queue", o.queue(), options)
	if slices.Contains(kinds, o.kind()) {
		f.field(field+".kind", o.kind(), "must be another kind than that of the handler")
	}
}

// onDeath returns what makes the job that follows a death, or nil if none does. No handler
// is registered any more.
func (w *Worker) onDeath() func(*storage.Leased, *storage.Finish, time.Time) *storage.NewJob {
	kinds, options, follows := w.onDead, &w.queue.opts, len(w.onDead) > 0
	for _, o := range options.Queues {
		follows = follows || o.OnDead != nil
	}
	if !follows {
		return nil
	}
	return func(job *storage.Leased, f *storage.Finish, at time.Time) *storage.NewJob {
		o := cmp.Or(kinds[job.Kind], options.optionsOf(job.Queue).OnDead)
		if _, notice := w.queue.notices.Load(job.Kind); notice || o == nil {
			return nil
		}
		c := f.Effect(false).Counters(job.Counters)
		args, err := json.Marshal(DeadNotice{
			ID: job.ID, Queue: job.Queue, OfKind: job.Kind, Reason: f.Reason, Error: f.Error, Attempt: c.Attempt,
			CreatedAt: job.CreatedAt.UTC(), DiedAt: at.UTC().Truncate(time.Microsecond),
		})
		if err != nil { // a year that JSON does not have
			args = []byte("{}")
		}
		return &storage.NewJob{Queue: o.queue(), Kind: o.kind(), Args: args}
	}
}
