package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// noteDead is the notice of the death of a note.
type noteDead struct{ errand.DeadNotice }

func (noteDead) Kind() string { return "note-dead" }

// oldNote is a note under the name that its kind had before.
type oldNote struct{ note }

func (oldNote) Kind() string { return "old-note" }

// notices are the jobs that deaths were followed by, as a worker receives them.
type notices struct {
	got   []errand.DeadNotice
	where []string // queue and kind of each
	args  []json.RawMessage
	mu    sync.Mutex // of these, while handlers run
}

// all returns what there is.
func (n *notices) all() []errand.DeadNotice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

// heed registers handlers that return err for notices.
func (n *notices) heed(t *testing.T, q *errand.Queue, w *errand.Worker, err error) {
	t.Helper()
	take := func(id errand.ID, args errand.DeadNotice, where string) error {
		stored := lookUp(t, q, id).Args
		n.mu.Lock()
		defer n.mu.Unlock()
		n.got, n.where, n.args = append(n.got, args), append(n.where, where), append(n.args, stored)
		return err
	}
	errand.Handle(w, func(_ context.Context, job *errand.Job[errand.DeadNotice]) error {
		return take(job.ID, job.Args, job.Queue+" "+job.Kind)
	})
	errand.Handle(w, func(_ context.Context, job *errand.Job[noteDead]) error {
		return take(job.ID, job.Args.DeadNotice, job.Queue+" "+job.Kind)
	})
}

// wants checks that the last of n notices is of the death of a job.
func (n *notices) wants(t *testing.T, q *errand.Queue, total int, id errand.ID, where string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Helper()
	if len(n.got) != total {
		t.Fatalf("the notices are %+v, want %d", n.got, total)
	}
	got, j := n.got[total-1], lookUp(t, q, id)
	times := got.CreatedAt.Equal(j.CreatedAt) && got.DiedAt.Equal(j.EndedAt)
	got.CreatedAt, got.DiedAt = time.Time{}, time.Time{}
	want := errand.DeadNotice{ID: id, Queue: j.Queue, OfKind: j.Kind, Reason: j.Reason, Error: j.Error, Attempt: j.Attempt}
	if !times || got != want || j.State != errand.Dead || j.Error == "" {
		t.Errorf("the notice is %+v, want one of %+v", n.got[total-1], j)
	}
	if n.where[total-1] != where {
		t.Errorf("the notice came as %s, want %s", n.where[total-1], where)
	}
	const form = `{"id":%q,"queue":%q,"kind":%q,"reason":%q,"error":%q,"attempt":%d,"created_at":%q,"died_at":%q}`
	text := fmt.Sprintf(form, id, j.Queue, j.Kind, j.Reason, j.Error, j.Attempt,
		j.CreatedAt.UTC().Format(time.RFC3339Nano), j.EndedAt.UTC().Format(time.RFC3339Nano))
	if string(n.args[total-1]) != text {
		t.Errorf("the args are %s, want %s", n.args[total-1], text)
	}
}

// Each death is followed by one job, of its kind or of its queue, however it comes about.
// That one may die too.
func TestOnDead(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		errs   []error // of the attempts; the last one is returned again
		args   errand.Args
		reason errand.Reason
	}{
		"permanent":   {[]error{errand.Permanent(no)}, note{}, errand.ReasonPermanent},
		"exhausted":   {[]error{no}, note{}, errand.ReasonExhausted},
		"after":       {[]error{errand.RetryAfter(time.Second, no)}, note{}, errand.ReasonExhausted},
		"snoozed":     {[]error{errand.Snooze(0, no)}, note{}, errand.ReasonSnoozed},
		"decode":      {nil, errand.RawArgs{OfKind: "note", JSON: json.RawMessage(`"no note"`)}, errand.ReasonDecode},
		"unavailable": {[]error{errand.Unavailable(no)}, note{}, errand.ReasonUnavailable},
		"spent":       {[]error{errand.Unavailable(no)}, note{}, errand.ReasonExhausted}, // as others are reached
		"alias":       {[]error{no}, oldNote{}, errand.ReasonExhausted},
	} {
		for where, ofKind := range map[string]*errand.OnDead{"mail note-dead": {Kind: "note-dead", Queue: "mail"}, "ops errand.dead": nil} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{
						"mail": {OnDead: &errand.OnDead{Queue: "ops"}}, "ops": {OnDead: &errand.OnDead{}},
					}, Clock: func() time.Time { // which is plausible, and has a zone and a part of a microsecond
						return time.Now().AddDate(50, 0, 0).Add(1).In(time.FixedZone("east", 3600))
					}})
					w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "ops", "default"}, MaxSnoozes: 1})
					o := errand.HandlerOptions{Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}, OnDead: ofKind, Aliases: []string{"old-note"}}
					if c.reason == errand.ReasonUnavailable {
						o.MaxUnavailable = time.Millisecond
					}
					errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
						if job.Args.Text == "well" {
							return nil
						}
						return c.errs[min(job.Attempt, len(c.errs))-1]
					}, o)
					var all notices
					all.heed(t, q, w, errand.Permanent(no)) // of which there is no notice, though queue ops has an OnDead
					run(t, w)
					id := enqueue(t, q, c.args, &errand.JobOptions{Queue: "mail"})
					for range 60 {
						time.Sleep(time.Second)
						if name == "spent" {
							enqueue(t, q, note{Text: "well"}, &errand.JobOptions{Queue: "mail"})
						}
					}
					synctest.Wait()
					if j := lookUp(t, q, id); j.Reason != c.reason {
						t.Errorf("the job is %+v, want it dead as %s", j, c.reason)
					}
					all.wants(t, q, 1, id, where)
				})
			})
		}
	}
}

// There is no notice of what is no death, and one of each death of a job that is redriven.
func TestOnDead_OfDeathsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		verdicts := map[string]error{
			"done": nil, "cancel": errand.Cancel(errors.New("no")), "dead": errand.Permanent(errors.New("no")),
		}
		errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
			if job.Args.Text == "running" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return verdicts[job.Args.Text]
		}, errand.HandlerOptions{OnDead: &errand.OnDead{}})
		errand.Handle(w, func(context.Context, *errand.Job[oldNote]) error { // which has no OnDead
			return errand.Permanent(errors.New("no"))
		})
		var all notices
		all.heed(t, q, w, nil)
		run(t, w)
		enqueue(t, q, oldNote{}, nil)
		later := func(text string) errand.ID {
			return enqueue(t, q, note{Text: text}, &errand.JobOptions{Delay: time.Hour})
		}
		enqueue(t, q, note{Text: "done"}, nil)
		enqueue(t, q, note{Text: "cancel"}, nil)
		gone, running, waiting := later("dead"), enqueue(t, q, note{Text: "running"}, nil), later("dead")
		synctest.Wait()
		for _, id := range []errand.ID{running, waiting} {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		if n, err := q.Delete(t.Context(), errand.JobFilter{IDs: []errand.ID{waiting}}); err != nil || n != 1 {
			t.Error(n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(all.all()) > 0 {
			t.Errorf("the notices are %+v, want none", all.all())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		all.wants(t, q, 1, gone, "default errand.dead")
		one := errand.JobFilter{IDs: []errand.ID{gone}}
		if r, err := q.DeadLetters().Redrive(t.Context(), one, nil); err != nil || r.Redriven != 1 {
			t.Error(r, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		all.wants(t, q, 2, gone, "default errand.dead")
		if n, err := q.DeadLetters().Purge(t.Context(), one); err != nil || n != 1 {
			t.Error(n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(all.all()) != 2 {
			t.Errorf("the notices are %+v, want 2", all.all())
		}
	})
}

// Two workers of a process would have each other's notices followed by theirs.
func TestOnDead_NoChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		var died []string
		dies := func(kind, next string) {
			w := errand.NewWorker(q, nil)
			errand.HandleRaw(w, kind, func(context.Context, *errand.Job[errand.RawArgs]) error {
				died = append(died, kind)
				return errand.Permanent(errors.New("no"))
			}, errand.HandlerOptions{OnDead: &errand.OnDead{Kind: next}})
			run(t, w)
		}
		dies("first", "second")
		dies("second", "third")
		dies("third", "second")
		enqueue(t, q, errand.RawArgs{OfKind: "first"}, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(died, []string{"first", "second"}) {
			t.Errorf("died have %v, want the first, and the second of its notice", died)
		}
	})
}

// A job whose processes die is told of by the one that decides, and not by one that does
// not know its kind: by the one that recovers the job, or by the next that leases it.
func TestOnDead_OfCrashes(t *testing.T) {
	for name, stranger := range map[string]bool{"recovered here": false, "recovered by a stranger": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { onDeadOfCrash(t, stranger) }) })
	}
}

func onDeadOfCrash(t *testing.T, stranger bool) {
	db := storagetest.NewMemory()
	open := func() (*errand.Queue, storage.Store) {
		store := db.Open()
		// The stranger works for the queue, and would have a notice of its own.
		queues := map[string]errand.QueueOptions{"default": {OnDead: &errand.OnDead{Kind: "note-dead"}}}
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet, Queues: queues})
		if err != nil {
			t.Fatal(err)
		}
		return q, store
	}
	q, _ := open()
	id := enqueue(t, q, note{}, &errand.JobOptions{Policy: &policy.Policy{}})
	_, victim := open()
	got, err := victim.Exchange(t.Context(), time.Now(), storage.Exchange{
		LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"default"}, Kinds: []string{"note"}, N: 1}},
	})
	if err != nil || len(got.Leased) != 1 {
		t.Fatal(got, err)
	}
	if err := victim.(storage.Marker).Started(got.Leased[0].Lease, time.Now()); err != nil {
		t.Fatal(err)
	}
	db.Kill(victim)

	if stranger {
		other, _ := open()
		w := errand.NewWorker(other, nil)
		errand.Handle(w, func(context.Context, *errand.Job[value]) error { return nil })
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if j := lookUp(t, q, id); j.State == errand.Dead || j.Crashes != 1 {
			t.Errorf("with a process that does not know the kind the job is %+v", j)
		}
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[note]) error {
		t.Error("a job without retries runs again")
		return nil
	}, errand.HandlerOptions{OnDead: &errand.OnDead{}})
	var all notices
	all.heed(t, q, w, nil)
	run(t, w)
	time.Sleep(time.Minute)
	synctest.Wait()
	all.wants(t, q, 1, id, "default errand.dead")
	if n := all.all()[0]; n.Reason != errand.ReasonCrashed || n.Attempt != 1 {
		t.Errorf("the notice is %+v", n)
	}
}

// Changes of the options after they were checked are no changes.
func TestOnDead_IsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofQueue, ofKind := errand.OnDead{}, errand.OnDead{}
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"mail": {OnDead: &ofQueue}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "default"}})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		errand.Handle(w, func(context.Context, *errand.Job[oldNote]) error { return errand.Permanent(errors.New("no")) },
			errand.HandlerOptions{OnDead: &ofKind})
		var all notices
		all.heed(t, q, w, nil)
		ofQueue.Kind, ofKind.Kind = "no kind", "no kind"
		run(t, w)
		enqueue(t, q, note{}, &errand.JobOptions{Queue: "mail"})
		enqueue(t, q, oldNote{}, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(all.all()) != 2 {
			t.Errorf("the notices are %+v, want 2", all.all())
		}
	})
}

func TestOnDead_IsChecked(t *testing.T) {
	_, err := errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"mail": {OnDead: &errand.OnDead{Kind: "a b", Queue: "c d"}}}})
	const limit = "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"
	wantFaults(t, err, fault{"store", "nil", "must not be nil"}, fault{`queues["mail"].on_dead.kind`, `"a b"`, limit},
		fault{`queues["mail"].on_dead.queue`, `"c d"`, limit})
	q, _ := memoryQueue(t, errand.Options{})
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `on_dead.kind "note": must be another kind`) {
			t.Errorf("panic with %q", got)
		}
	}()
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
		errand.HandlerOptions{OnDead: &errand.OnDead{Kind: "note"}})
}
