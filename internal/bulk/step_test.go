package bulk

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// deadJobs is a Store of dead jobs. Its disk has room for so many redrives in a step.
type deadJobs struct {
	storage.Store
	all  []storage.ID
	dead map[storage.ID]string // their args
	held storage.ID            // its unique key is held by another job
	room int
}

func (s *deadJobs) Job(_ context.Context, id storage.ID) (storage.Record, error) {
	args, ok := s.dead[id]
	if !ok {
		return storage.Record{State: storage.Ready}, nil
	}
	return storage.Record{State: storage.Dead, Args: []byte(args)}, nil
}

func (s *deadJobs) Jobs(context.Context, storage.Filter, string, int) (p storage.Page, err error) {
	for _, id := range s.all {
		if _, ok := s.dead[id]; ok {
			p.Jobs = append(p.Jobs, storage.Record{ID: id, EndedAt: time.Unix(1e9, 0)})
		}
	}
	return p, nil
}

func (s *deadJobs) Change(context.Context, time.Time, storage.Selection, storage.Edit) (storage.Step, error) {
	return storage.Step{N: 1}, nil
}

func (s *deadJobs) Redrive(_ context.Context, _ time.Time, sel storage.Selection, _ string) (step storage.Step, err error) {
	for _, id := range sel.IDs {
		if step.Taken == s.room {
			return step, storage.ErrFull
		}
		step.Taken++
		if id == s.held {
			step.Duplicates = append(step.Duplicates, id)
			continue
		}
		step.N++
		delete(s.dead, id)
	}
	return step, nil
}

// A step that finds room for a part of its jobs goes on behind them, and counts each job once.
func TestStepper_SetInParts(t *testing.T) {
	for name, named := range map[string]bool{"by ID": true, "by filter": false} {
		t.Run(name, func(t *testing.T) {
			s := &deadJobs{dead: map[storage.ID]string{}, room: 2}
			for i := range 9 {
				id := storage.ID{15: byte(i + 1)}
				s.all = append(s.all, id)
				s.dead[id] = `{"a":1}`
				if i%4 == 1 {
					s.dead[id] = `{}` // it cannot be set
				}
			}
			s.held = s.all[2]
			o := &Order{Do: Redrive, Set: map[string]json.RawMessage{"a": json.RawMessage("2")}, Filter: storage.Filter{States: []storage.State{storage.Dead}}}
			if named {
				o.IDs = slices.Clone(s.all)
			}
			st := &Stepper{Store: s, Order: o, Now: func(context.Context) (time.Time, bool) { return time.Unix(2e9, 0), true }, MaxArgs: 100}
			if err := st.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			full := 0
			for tries := 0; !st.Over() && tries < 20; tries++ {
				if _, err := st.Step(t.Context(), 0); err != nil {
					full++
					s.room++
				}
			}
			if !st.Over() || full == 0 || st.At.Changed != 6 || st.At.Left != 3 {
				t.Errorf("after %d steps without room: %+v, want 6 changed, 3 left", full, st.At)
			}
		})
	}
}

// A redrive of a group that an older build has begun leaves out no job: that build went by the times of
// deaths, and here the job with the lowest key died last.
func TestPlace_OfAnOlderBuild(t *testing.T) {
	s, ctx, now := storagetest.NewMemory().Open(), t.Context(), time.Unix(1e9, 0)
	job := storage.NewJob{Queue: "q", Kind: "k", Group: "g", Args: []byte("{}")}
	added, err := s.Enqueue(ctx, now, []storage.NewJob{job, job, job})
	if err != nil {
		t.Fatal(err)
	}
	die := func() (died time.Time) {
		t.Helper()
		now = now.Add(time.Second)
		got, err := s.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}})
		if err != nil || len(got.Leased) != 1 {
			t.Fatal(got.Leased, err)
		}
		f := storage.Finish{Lease: got.Leased[0].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}
		if _, err := s.Exchange(ctx, now, storage.Exchange{Finish: []storage.Finish{f}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SkipHead(ctx, "q", "g"); err != nil {
			t.Fatal(err)
		}
		return now
	}
	die()
	second := die()
	die()
	if _, err := s.Redrive(ctx, now, storage.Selection{IDs: []storage.ID{added[0].ID}}, ""); err != nil {
		t.Fatal(err)
	}
	die()
	o := &Order{Do: Redrive, Filter: storage.Filter{Queue: "q", Group: "g", States: []storage.State{storage.Dead}}}
	st := &Stepper{Store: s, Order: o, Now: func(context.Context) (time.Time, bool) { return now, true }}
	older := Place{After: storage.Position{At: second, Key: added[1].ID.Key()}, Before: now.Add(time.Second)}
	data, err := json.Marshal(&older)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.At.read(data, o); err != nil {
		t.Fatal(err)
	}
	for !st.Over() {
		if _, err := st.Step(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := s.Jobs(ctx, storage.Filter{States: []storage.State{storage.Dead}}, "", 10); err != nil || len(left.Jobs) > 0 {
		t.Errorf("%d jobs are still dead, %v", len(left.Jobs), err)
	}
}
