package errand_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Each death is followed by one job, of its kind or of its queue, however it comes about.
func TestOnDead(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name   string
		errs   []error
		reason errand.Reason
	}{
		{"permanent", []error{errand.Permanent(no)}, errand.ReasonPermanent},
		{"exhausted", []error{no, no}, errand.ReasonExhausted},
		{"snoozed", []error{errand.Snooze(0, no), errand.Snooze(0, no)}, errand.ReasonSnoozed},
	} {
		for _, ofKind := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, ofKind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{
						"mail": {OnDead: &errand.OnDead{Queue: "ops"}}, "ops": {OnDead: &errand.OnDead{}},
					}})
					w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"mail", "ops"}, MaxSnoozes: 1})
					o := errand.HandlerOptions{Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}}
					if ofKind {
						o.OnDead = &errand.OnDead{Kind: "note-dead", Queue: "mail"}
					}
					errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
						if job.Attempt > len(c.errs) {
							return nil
						}
						return c.errs[job.Attempt-1]
					}, o)
					var got []errand.DeadNotice
					var kinds []string
					errand.Handle(w, func(_ context.Context, job *errand.Job[errand.DeadNotice]) error {
						got, kinds = append(got, job.Args), append(kinds, job.Queue+" "+job.Kind)
						return errand.Permanent(no) // gives no notice, though queue ops has an OnDead
					})
					errand.Handle(w, func(_ context.Context, job *errand.Job[noteDead]) error {
						got, kinds = append(got, job.Args.DeadNotice), append(kinds, job.Queue+" "+job.Kind)
						return nil
					})
					run(t, w)
					id := enqueue(t, q, note{}, &errand.JobOptions{Queue: "mail"})
					time.Sleep(time.Minute)
					synctest.Wait()
					j := lookUp(t, q, id)
					want := errand.DeadNotice{
						ID: id, Queue: "mail", OfKind: "note", Reason: c.reason, Error: j.Error, Attempt: len(c.errs),
						CreatedAt: j.CreatedAt, DiedAt: j.EndedAt,
					}
					if len(got) == 1 && got[0].CreatedAt.Equal(want.CreatedAt) && got[0].DiedAt.Equal(want.DiedAt) {
						want.CreatedAt, want.DiedAt = got[0].CreatedAt, got[0].DiedAt
					}
					if len(got) != 1 || got[0] != want {
						t.Fatalf("the notices are %+v, want one as %+v", got, want)
					}
					if name := map[bool]string{true: "mail note-dead", false: "ops errand.dead"}[ofKind]; kinds[0] != name {
						t.Errorf("the notice came as %s, want %s", kinds[0], name)
					}
				})
			})
		}
	}
}

// A job whose processes die is told of by the one that decides, and not by one that does
// not know its kind.
func TestOnDead_OfCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := storagetest.NewMemory()
		open := func() (*errand.Queue, storage.Store) {
			store := db.Open()
			q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
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

		stranger, _ := open()
		w := errand.NewWorker(stranger, nil)
		errand.Handle(w, func(context.Context, *errand.Job[value]) error { return nil })
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if j := lookUp(t, q, id); j.State == errand.Dead {
			t.Error("a process that does not know the kind has ended the job")
		}
		var notices []errand.DeadNotice
		w = errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			t.Error("a job without retries runs again")
			return nil
		}, errand.HandlerOptions{OnDead: &errand.OnDead{}})
		errand.Handle(w, func(_ context.Context, job *errand.Job[errand.DeadNotice]) error {
			notices = append(notices, job.Args)
			return nil
		})
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(notices) != 1 || notices[0].ID != id || notices[0].Reason != errand.ReasonCrashed {
			t.Errorf("the notices are %+v", notices)
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
