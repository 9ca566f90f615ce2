package apitest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What jobs die of is counted under what it has in common, whichever way they die.
func TestDeadLetters_Causes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := memoryQueue(t, errand.Options{
			Policy: &policy.Policy{}, Queues: map[string]errand.QueueOptions{"default": {MaxDeaths: -1}},
		})
		w := errand.NewWorker(q, &errand.WorkerOptions{MaxSnoozes: 1})
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			switch n := job.Args.N; {
			case n < 8:
				return errand.Permanent(fmt.Errorf("order %d of %q: status 422", n*1000, fmt.Sprint("customer ", n)))
			case n < 11:
				return fmt.Errorf("order %d timed out", n)
			case n < 13:
				panic(fmt.Sprintf("order %d is mad", n))
			}
			return errand.Snooze(time.Second, fmt.Errorf("order %d", job.Args.N))
		})
		for i := range 14 {
			enqueue(t, q, note{N: i}, nil)
		}
		bad := storage.NewJob{Queue: "default", Kind: "note", Args: []byte(`{"N":"seventeen"}`)}
		if _, err := store.Enqueue(t.Context(), time.Now(), []storage.NewJob{bad}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, w)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		causes, err := q.DeadLetters().Causes(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, c := range causes {
			got[fmt.Sprintf("%s %s %s: %s", c.Queue, c.Kind, c.Reason, c.Text)] = c.N
		}
		want := map[string]int64{
			`default note permanent: order # of "…": status 422`:                                                       8,
			"default note exhausted: order # timed out":                                                                3,
			"default note exhausted: panic: order # is mad":                                                            2,
			"default note decode: decode: args: json: cannot unmarshal string into Go struct field note.N of type int": 1,
			"default note snoozed: snoozed more than # times, the last time: order #":                                  1,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("causes %v", got)
		}
	})
}

// Dead letters are listed, redriven and purged by cause.
func TestJobFilter_Cause(t *testing.T) {
	g := newGraveyard(t)
	a, b, c := g.bury(note{}, nil, errand.ReasonPermanent, "x"), g.bury(note{}, nil, errand.ReasonPermanent, "x"), g.bury(value{1}, nil, errand.ReasonPermanent, "x")
	dead := g.DeadLetters()
	causes, err := dead.Causes(t.Context(), &errand.CauseOptions{Lane: errand.Lane{Kind: "note"}, Limit: 1})
	if err != nil || len(causes) != 1 || causes[0].N != 2 || causes[0].Job != b || !causes[0].Last.After(causes[0].First) {
		t.Fatalf("causes %+v, %v", causes, err)
	}
	f := errand.JobFilter{Cause: causes[0].ID}
	if got := g.list(f, 1); !reflect.DeepEqual(got, []errand.ID{b, a}) {
		t.Errorf("of the cause are listed %v, want %v", got, []errand.ID{b, a})
	}
	if r, err := dead.Redrive(t.Context(), f, nil); err != nil || r.Redriven != 2 {
		t.Errorf("Redrive gave %+v, %v", r, err)
	}
	if n, err := dead.Purge(t.Context(), f); err != nil || n != 0 {
		t.Errorf("Purge of a cause that is gone: %d, %v", n, err)
	}
	if got := g.list(errand.JobFilter{}, 0); !reflect.DeepEqual(got, []errand.ID{c}) {
		t.Errorf("left are %v, want %v", got, c)
	}
	if _, err := g.RunNow(t.Context(), f, nil); !errors.As(err, new(*errand.FieldError)) {
		t.Errorf("RunNow by cause: %v", err)
	}
	for _, o := range []errand.CauseOptions{{Lane: errand.Lane{Queue: "a b"}}, {Lane: errand.Lane{Kind: "?"}}, {Limit: -1}, {Limit: 10_001}} {
		if _, err := dead.Causes(t.Context(), &o); !errors.As(err, new(*errand.FieldError)) {
			t.Errorf("Causes of %+v: %v", o, err)
		}
	}
}

// readCounter is a store that counts the reads of causes and deaths.
type readCounter struct {
	*sqlite.Store
	reads int
}

func (s *readCounter) Causes(ctx context.Context, lane errand.Lane, limit int) ([]errand.Cause, error) {
	s.reads++
	return s.Store.Causes(ctx, lane, limit)
}

func (s *readCounter) Deaths(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
	s.reads++
	return s.Store.Deaths(ctx, causes, from, each, n, most)
}

// The hours of all causes are one read, and each cause has its own.
func TestCauses_HoursAreOneRead(t *testing.T) {
	g := newGraveyard(t)
	for i, text := range []string{"a", "b", "b", "c", "c", "c"} {
		g.bury(note{}, &errand.JobOptions{Queue: fmt.Sprintf("q%d", i%2)}, errand.ReasonPermanent, text)
	}
	s := &readCounter{Store: g.store.(*sqlite.Store)}
	q, err := errand.New(t.Context(), s, &errand.Options{Logger: quiet, Clock: func() time.Time { return g.now }})
	if err != nil {
		t.Fatal(err)
	}
	all, err := q.DeadLetters().Causes(t.Context(), &errand.CauseOptions{Hours: true})
	if err != nil || len(all) != 5 || s.reads != 2 {
		t.Errorf("%d causes, %v, after %d reads, want 5 after 2", len(all), err, s.reads)
	}
	for _, c := range all {
		n := int64(0)
		for _, died := range c.Hours.Died {
			n += int64(died)
		}
		if n != c.N {
			t.Errorf("of the %d jobs of %+v %d died in one of the hours", c.N, c, n)
		}
	}
}
