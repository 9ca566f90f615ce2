package apitest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

var fuzzDay = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// corpse is a dead letter as the test wants it.
type corpse struct {
	queue, kind string
	reason      errand.Reason
	error       string
	after       time.Duration // fuzzDay, when it died
}

// theDead has ties, letters of either case, letters that are not ASCII, and
// what would mean something in a pattern.
var theDead = []corpse{
	{"default", "a", errand.ReasonExhausted, "connection refused", 0},
	{"default", "b", errand.ReasonPermanent, "Connection REFUSED", time.Second},
	{"default", "a", errand.ReasonCrashed, "", time.Second},
	{"Default", "a", errand.ReasonDecode, "100% of _ and %", time.Second},
	{"mail", "a", errand.ReasonSnoozed, "\u00c9COLE ferm\u00e9e", 2 * time.Second},
	{"mail", "b/c", errand.ReasonExhausted, "\u00e9cole 'ferm\u00e9e' \"\\", 2*time.Second + time.Microsecond},
	{"mail", "a", errand.ReasonPermanent, "\u212aelvin is no k", time.Minute},
	{"mail", "B", errand.ReasonExhausted, strings.Repeat("long ", 400) + "end", time.Hour},
}

// cemetery is a queue with the theDead in it.
type cemetery struct {
	q     *errand.Queue
	store storage.Store
	ids   []errand.ID // of the theDead
}

func newCemetery(tb testing.TB, store storage.Store) *cemetery {
	tb.Helper()
	q, err := errand.New(context.Background(), store, &errand.Options{Clock: func() time.Time { return fuzzDay.Add(24 * time.Hour) }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = q.Close() })
	c := &cemetery{q: q, store: store, ids: make([]errand.ID, len(theDead))}
	for i := range theDead {
		c.bury(tb, i)
	}
	return c
}

// bury makes the i-th of the theDead.
func (c *cemetery) bury(tb testing.TB, i int) {
	tb.Helper()
	g, ctx := theDead[i], context.Background()
	at := fuzzDay.Add(g.after)
	e, err := c.store.Enqueue(ctx, at, []storage.NewJob{{Queue: g.queue, Kind: g.kind, Args: []byte("{}")}})
	if err != nil {
		tb.Fatal(err)
	}
	c.ids[i] = e[0].ID
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{g.queue}, Kinds: []string{g.kind}, N: 1}}}
	r, err := c.store.Exchange(ctx, at, x)
	if err != nil || len(r.Leased) != 1 || r.Leased[0].ID != c.ids[i] {
		tb.Fatalf("leased %v, %v", r.Leased, err)
	}
	x.Wants = nil
	x.Finish = []storage.Finish{{Lease: r.Leased[0].Lease, Outcome: storage.OutcomeDead, Reason: g.reason, Error: g.error}}
	if _, err := c.store.Exchange(ctx, at, x); err != nil {
		tb.Fatal(err)
	}
}

// number returns which of the theDead a job is.
func (c *cemetery) number(id errand.ID) int { return slices.Index(c.ids, id) }

// list returns all that a filter finds, page by page.
func (c *cemetery) list(f errand.JobFilter, limit int, after string) (found []int, pages []int, err error) {
	for {
		page, err := c.q.DeadLetters().List(context.Background(), f, &errand.ListOptions{Limit: limit, After: after})
		if err != nil {
			return nil, nil, err
		}
		for _, j := range page.Jobs {
			found = append(found, c.number(j.ID))
		}
		pages = append(pages, len(page.Jobs))
		if after = page.Next; after == "" {
			return found, pages, nil
		}
	}
}

// gone returns those that are not dead any more, and puts them back.
func (c *cemetery) gone(t *testing.T) (out []int) {
	t.Helper()
	for i, id := range c.ids {
		if _, err := c.q.DeadLetters().Get(context.Background(), id); err == nil {
			continue
		} else if !errors.Is(err, errand.ErrNotFound) {
			t.Fatal(err)
		}
		out = append(out, i)
		if _, err := c.store.Cancel(context.Background(), fuzzDay, id, storage.Retention{}); err != nil && !errors.Is(err, errand.ErrNotFound) {
			t.Fatal(err)
		}
	}
	// All of them anew, so that those which died at the same time keep their order.
	if len(out) > 0 {
		if _, err := c.q.DeadLetters().Purge(context.Background(), errand.JobFilter{All: true}); err != nil {
			t.Fatal(err)
		}
		for i := range theDead {
			c.bury(t, i)
		}
	}
	return out
}

// chosen is what a filter means, in the simplest words.
func chosen(f errand.JobFilter) (out []int) {
	for i, g := range theDead {
		died := fuzzDay.Add(g.after)
		lower := func(s string) string {
			return strings.Map(func(r rune) rune {
				if 'A' <= r && r <= 'Z' {
					r += 'a' - 'A'
				}
				return r
			}, s)
		}
		switch {
		case f.Queue != "" && f.Queue != g.queue, f.Kind != "" && f.Kind != g.kind, f.Reason != "" && f.Reason != g.reason,
			!f.EndedFrom.IsZero() && died.Before(f.EndedFrom), !f.EndedBefore.IsZero() && !died.Before(f.EndedBefore),
			f.OlderThan > 0 && fuzzDay.Add(24*time.Hour).Sub(died) < f.OlderThan, !strings.Contains(lower(g.error), lower(f.Error)):
		default:
			out = append(out, i)
		}
	}
	return out
}

// FuzzJobFilter compares what filters select on SQLite, in the model, and by
// the words of their documentation.
func FuzzJobFilter(f *testing.F) {
	s, err := sqlite.Open(filepath.Join(f.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true, Ballast: -1})
	if err != nil {
		f.Fatal(err)
	}
	both := []*cemetery{newCemetery(f, s), newCemetery(f, storagetest.NewMemory().Open())}
	day := fuzzDay.Unix()
	f.Add(byte(0), "", "", "", int64(0), int64(0), int64(0), int64(0), "", byte(0), "")
	f.Add(byte(1), "mail", "", "", int64(0), int64(0), int64(0), int64(0), "FERM", byte(1), "")
	f.Add(byte(2), "", "a", "", int64(0), int64(0), int64(0), int64(0), "k", byte(2), "")
	f.Add(byte(0), "", "", "exhausted", int64(0), int64(0), int64(0), int64(0), "%", byte(3), "AQ")
	f.Add(byte(1), "", "", "", day+1, int64(0), day+2, int64(1001), "", byte(0), "")
	f.Add(byte(2), "", "", "", day+1, int64(1), int64(1<<40), int64(0), "", byte(2), "")
	f.Add(byte(0), "", "", "", int64(-1<<40), int64(0), int64(1<<62), int64(0), "", byte(2), "")
	f.Add(byte(2), "", "", "", int64(1<<62), int64(0), int64(0), int64(0), "", byte(2), "")
	f.Add(byte(6), "", "", "", int64(0), int64(0), int64(0), int64(0), "", byte(2), "")
	f.Add(byte(10), "", "", "", int64(0), int64(0), int64(24*3600-1), int64(0), "", byte(2), "")
	f.Fuzz(func(t *testing.T, what byte, queue, kind, reason string, from, fromNano, before, beforeNano int64, text string, limit byte, after string) {
		filter := errand.JobFilter{Queue: queue, Kind: kind, Reason: errand.Reason(reason), Error: text, All: what&4 != 0}
		if from != 0 {
			filter.EndedFrom = time.Unix(from, fromNano%1e9)
		}
		switch {
		case before == 0:
		case what&8 != 0:
			filter.OlderThan = time.Duration(before)*time.Second + time.Duration(beforeNano%1e9)
		default:
			filter.EndedBefore = time.Unix(before, beforeNano%1e9)
		}
		type answer struct {
			found, pages, gone []int
			n                  int
			list, done         string
		}
		var all []answer
		for _, c := range both {
			var a answer
			var err, done error
			a.found, a.pages, err = c.list(filter, int(limit), after)
			switch what % 4 {
			case 1:
				var r errand.RedriveResult
				r, done = c.q.DeadLetters().Redrive(context.Background(), filter, nil)
				a.n = r.Redriven
			case 2:
				a.n, done = c.q.DeadLetters().Purge(context.Background(), filter)
			}
			a.gone = c.gone(t)
			for _, e := range []error{err, done} {
				if e != nil && !errors.Is(e, errand.ErrInvalid) && !errors.Is(e, errand.ErrPurgeAll) {
					t.Errorf("%+v: %v", filter, e)
				}
			}
			a.list, a.done = fmt.Sprint(err), fmt.Sprint(done)
			all = append(all, a)
			want := chosen(filter)
			if err == nil && after == "" {
				got := slices.Sorted(slices.Values(a.found))
				if !slices.Equal(got, want) {
					t.Errorf("%+v: lists %v, want %v", filter, got, want)
				}
			}
			if done != nil || what%4 == 0 || what%4 == 3 {
				want = nil
			}
			if !slices.Equal(a.gone, want) || a.n != len(want) {
				t.Errorf("%+v: %d and %v are gone, want %v", filter, a.n, a.gone, want)
			}
		}
		if !reflect.DeepEqual(all[0], all[1]) {
			t.Errorf("%+v:\nSQLite %+v\nmodel  %+v", filter, all[0], all[1])
		}
	})
}
