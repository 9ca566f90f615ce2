// Package rowstest checks how a store reads what rules decide on, see [rules.Need].
package rowstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// DB is an empty database.
type DB interface {
	// Open opens an instance, which is closed with the test.
	Open() storage.Store
	// Rows calls fn in a transaction of s that writes, with what loads and locks rows.
	Rows(s storage.Store, fn func(load) error) error
}

// load locks and reads what a call needs.
type load = func(rules.Need) (*rules.Tx, error)

// Overlapping is implemented by a DB whose transactions overlap.
type Overlapping interface {
	// Waits returns once a transaction waits for what another has locked.
	Waits()
}

const (
	queue = "q"
	kind  = "k"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// name returns the name of a group as stores have it.
func name(group string) string { return queue + " " + group }

// fixture is a database with an instance.
type fixture struct {
	*testing.T
	db   DB
	s    storage.Store
	keep time.Duration // how long finished jobs are kept
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// add enqueues n members of a group, and returns their keys.
func (f *fixture) add(group string, n int) (keys []int64) {
	f.Helper()
	for range n {
		out, err := f.s.Enqueue(f.Context(), now, []storage.NewJob{{Queue: queue, Kind: kind, Group: group, Args: []byte("{}")}})
		f.must(err)
		keys = append(keys, out[0].ID.Key())
	}
	return keys
}

// exchange ends leases, and leases up to n jobs.
func (f *fixture) exchange(n int, ends ...storage.Finish) []storage.Leased {
	f.Helper()
	x := storage.Exchange{LeaseDuration: time.Minute, Finish: ends, Retention: storage.Retention{Default: f.keep}, Wants: []storage.Want{{Queues: []string{queue}, Kinds: []string{kind}, N: n}}}
	res, err := f.s.Exchange(f.Context(), now, x)
	f.must(err)
	return res.Leased
}

func (f *fixture) limit(n int64) {
	f.Helper()
	f.must(f.s.Configure(context.Background(), storage.Lane{Queue: queue}, storage.Settings{storage.SettingGroupLimit: n}))
}

// group reads the group g, twice, and checks that it is settled unless it is not to be.
func (f *fixture) group(anew, settled bool) (g rules.Group) {
	f.Helper()
	for range 2 { // reading changes nothing
		f.must(f.db.Rows(f.s, func(load load) error {
			tx, err := load(rules.Need{Groups: []string{name("g")}, Anew: anew})
			if err != nil {
				return err
			}
			if g, err = tx.Group(name("g"), anew); err != nil || !settled {
				return err
			}
			var d rules.Moves
			as := g
			as.Settle(anew, 0, &d)
			if n := len(d.Block) + len(d.LetIn) + len(d.Leave); n > 0 {
				f.Errorf("%d members of a settled group are to be moved: %+v", n, d)
			}
			return nil
		}))
	}
	return g
}

// cases are groups as calls leave them, and what is read of them.
var cases = []struct {
	what            string
	anew, unsettled bool
	build           func(f *fixture) (want rules.Group)
}{
	{"no members", false, false, func(*fixture) rules.Group {
		return rules.Group{Rule: rules.GroupRule{Limit: 1}}
	}},
	{"one that is ready, and two that wait", false, false, func(f *fixture) rules.Group {
		f.add("other", 2)
		keys := f.add("g", 3)
		return rules.Group{Rule: rules.GroupRule{Limit: 1}, Taken: 1, Waiting: keys[1:2], Members: []rules.Member{{Job: keys[0], Role: rules.Placed, State: storage.Ready}}}
	}},
	{"one that runs", false, false, func(f *fixture) rules.Group {
		keys := f.add("g", 2)
		f.exchange(1)
		return rules.Group{Rule: rules.GroupRule{Limit: 1}, Taken: 1, Waiting: keys[1:2], Members: []rules.Member{{Job: keys[0], Role: rules.Placed, State: storage.Running}}}
	}},
	{"one that waits for its retry", false, false, func(f *fixture) rules.Group {
		keys := f.add("g", 2)
		f.exchange(1, storage.Finish{Lease: f.exchange(1)[0].Lease, Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Hour)})
		return rules.Group{Rule: rules.GroupRule{Limit: 1}, Taken: 1, Waiting: keys[1:2], Members: []rules.Member{{Job: keys[0], Role: rules.Placed, State: storage.Scheduled}}}
	}},
	{"one that is dead", false, false, func(f *fixture) rules.Group {
		keys := f.add("g", 2)
		f.exchange(1, storage.Finish{Lease: f.exchange(1)[0].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
		return rules.Group{Rule: rules.GroupRule{Limit: 1}, Dead: true, Waiting: keys[1:2], Members: []rules.Member{{Job: keys[0], Role: rules.Blocks, State: storage.Dead}}}
	}},
	{"all places are taken", false, false, func(f *fixture) rules.Group {
		f.limit(2)
		keys := f.add("g", 4)
		return rules.Group{Rule: rules.GroupRule{Limit: 2, Pass: true}, Taken: 2, Waiting: keys[2:3]}
	}},
	{"there are more places since", false, true, func(f *fixture) rules.Group {
		keys := f.add("g", 5)
		f.limit(3)
		return rules.Group{Rule: rules.GroupRule{Limit: 3, Pass: true}, Taken: 1, Waiting: keys[1:3]}
	}},
	{"there are fewer places since", false, true, func(f *fixture) rules.Group {
		f.limit(5)
		keys := f.add("g", 10)
		f.limit(4)
		g := rules.Group{Rule: rules.GroupRule{Limit: 4, Pass: true}, Taken: 5, Waiting: keys[5:9]}
		for _, key := range keys[:5] {
			g.Members = append(g.Members, rules.Member{Job: key, Role: rules.Placed, State: storage.Ready})
		}
		return g
	}},
	{"the settings are applied anew", true, false, func(f *fixture) rules.Group {
		f.limit(2)
		keys := f.add("g", 4)
		f.exchange(1)
		return rules.Group{Rule: rules.GroupRule{Limit: 2, Pass: true}, Taken: 2, Waiting: keys[2:], Members: []rules.Member{
			{Job: keys[0], Role: rules.Placed, State: storage.Running}, {Job: keys[1], Role: rules.Placed, State: storage.Ready},
		}}
	}},
}

// Run checks a store. open returns an empty database for each case.
func Run(t *testing.T, open func(t *testing.T) DB) {
	begin := func(t *testing.T) *fixture {
		f := &fixture{T: t, db: open(t)}
		f.s = f.db.Open()
		return f
	}
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			f := begin(t)
			want := c.build(f)
			compare(t, f.group(c.anew, !c.unsettled), want)
		})
	}
	for _, c := range keyCases {
		t.Run("a key: "+c.what, func(t *testing.T) {
			f := begin(t)
			want := c.build(f)
			f.compareKey(f.key(&storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{}}), want)
			want.Waiter = nil
			f.compareKey(f.key(nil), want)
		})
	}
	if _, ok := open(t).(Overlapping); !ok {
		return
	}
	for what, check := range map[string]func(f *fixture, o Overlapping){
		"what is not loaded is not read": notLoaded, "Load waits for the group": loadWaits, "groups are locked in order": lockedInOrder,
		"Load waits for the key": loadWaitsForKey, "keys are locked in order, before groups": keysLockedFirst,
		"Load waits for the group of a job with the key": loadWaitsForItsGroup, "what is loaded is not leased": notLeased,
	} {
		t.Run(what, func(t *testing.T) {
			f := begin(t)
			o, _ := f.db.(Overlapping)
			check(f, o)
		})
	}
}

// compare compares what was read with what is needed: more members that wait may be read.
func compare(t *testing.T, got, want rules.Group) {
	t.Helper()
	if len(got.Waiting) > len(want.Waiting) {
		got.Waiting = got.Waiting[:len(want.Waiting)]
	}
	for i := range got.Members {
		got.Members[i].Lane = 0
	}
	slices.SortFunc(got.Members, func(a, b rules.Member) int { return cmp.Compare(a.Job, b.Job) })
	want.Name, want.More = name("g"), got.More
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("\n got %s\nwant %s", g, w)
	}
}

func notLoaded(f *fixture, _ Overlapping) {
	f.add("g", 1)
	for what, read := range map[string]func(tx *rules.Tx) error{
		"a group":       func(tx *rules.Tx) error { _, err := tx.Group(name("g"), false); return err },
		"a key":         func(tx *rules.Tx) error { _, err := tx.Key("u", nil); return err },
		"a job of one ": func(tx *rules.Tx) error { _, err := tx.Key("k", &storage.Conflict{Mode: storage.Replace}); return err },
	} {
		err := f.db.Rows(f.s, func(load load) error {
			tx, err := load(rules.Need{Keys: []rules.NeedKey{{Name: "k"}}, Groups: []string{name("other")}})
			if err != nil {
				return err
			}
			return read(tx)
		})
		if !errors.Is(err, rules.ErrNotLoaded) {
			f.Errorf("%s that was not loaded: %v, want ErrNotLoaded", what, err)
		}
	}
}

// load calls fn once groups are loaded.
func (f *fixture) load(fn func(), groups ...string) { f.loadAll(fn, rules.Need{Groups: groups}) }

func (f *fixture) loadAll(fn func(), n rules.Need) {
	err := f.db.Rows(f.s, func(load load) error {
		_, err := load(n)
		if err == nil {
			fn()
		}
		return err
	})
	if err != nil {
		f.Error(err)
	}
}

func loadWaits(f *fixture, o Overlapping) {
	f.add("g", 2)
	n := rules.Need{Groups: []string{name("g")}}
	f.waits(o, n, n)
}

// waits checks that a transaction which loads then waits for another that has loaded first.
func (f *fixture) waits(o Overlapping, first, then rules.Need) {
	var wg sync.WaitGroup
	over := false
	f.loadAll(func() {
		wg.Go(func() {
			f.loadAll(func() {
				if !over {
					f.Errorf("%+v and %+v were loaded by two transactions", first, then)
				}
			}, then)
		})
		o.Waits()
		over = true
	}, first)
	wg.Wait()
}

func lockedInOrder(f *fixture, o Overlapping) {
	var wg sync.WaitGroup
	f.load(func() {
		wg.Go(func() { f.load(func() {}, name("z"), name("a")) })
		o.Waits()                    // for a
		f.load(func() {}, name("z")) // so the other has not locked z
	}, name("a"))
	wg.Wait()
}

// notLeased checks that nobody leases the jobs that a transaction has read.
func notLeased(f *fixture, _ Overlapping) {
	f.add("g", 2)
	f.enqueue(storage.NewJob{})
	for what, n := range map[string]rules.Need{
		"a group": {Groups: []string{name("g")}},
		"a key":   {Keys: []rules.NeedKey{{Name: "u", Conflict: &storage.Conflict{Mode: storage.Replace}}}},
	} {
		f.loadAll(func() {
			var back []storage.Finish
			for _, l := range f.exchange(9) {
				if l.Group == "g" == (what == "a group") {
					f.Errorf("as %s is read, its job %d is leased", what, l.Key)
				}
				back = append(back, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeReturned})
			}
			if len(back) != 1 {
				f.Errorf("as %s is read, %d jobs are leased, want the other one", what, len(back))
			}
			f.exchange(0, back...)
		}, n)
	}
}
