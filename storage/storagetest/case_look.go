package storagetest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// publisher returns what s shows documents by, or skips the case.
func (f *fixture) publisher(s storage.Store) storage.Publisher {
	f.Helper()
	p, ok := s.(storage.Publisher)
	if !ok {
		f.skip("storage.Publisher")
	}
	return p
}

// publish has s, which is registered then, show a document.
func (f *fixture) publish(s storage.Store, doc string) {
	f.Helper()
	f.run(s)
	f.must(f.publisher(s).Publish([]byte(doc)))
}

// shows checks the documents that s finds, joined by spaces, of instances that show one.
func (f *fixture) shows(s storage.Store, want string) {
	f.Helper()
	all, err := f.publisher(s).Published(f.ctx)
	f.must(err)
	var docs []string
	for _, p := range all {
		if p.Doc != nil {
			docs = append(docs, string(p.Doc))
		}
		if p.Instance == "" {
			f.Error("an instance has no name")
		}
	}
	if got := strings.Join(docs, " "); got != want {
		f.Errorf("the documents are %q, want %q", got, want)
	}
}

// ahead checks how many jobs go before one.
func (f *fixture) ahead(id storage.ID, most int, want storage.Ahead) {
	f.Helper()
	if got, err := f.s.Ahead(f.ctx, id, most); err != nil || got != want {
		f.Errorf("Ahead(%d) = %+v, %v, want %+v", most, got, err, want)
	}
}

var lookCases = []testCase{
	{"publish", `Publish shows a document to all who have the database open, in place of the one that this instance has shown before.
Nil takes it back.
Published returns the documents of the instances that live, this one included, sorted by when the instances registered.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		f.publish(a, "one")
		f.publish(b, "two")
		f.shows(a, "one two")
		f.shows(b, "one two")
		f.shows(f.s, "one two")
		f.must(f.publisher(a).Publish([]byte("a longer one")))
		f.shows(b, "a longer one two")
		f.must(f.publisher(a).Publish([]byte("1")))
		f.shows(b, "1 two")
		f.must(f.publisher(b).Publish(nil))
		f.shows(a, "1")
		f.shows(b, "1")
	}},

	{"publish_first", `Others see it once the instance is registered.`, func(f *fixture) {
		a := f.db.Open()
		f.must(f.publisher(a).Publish([]byte("early")))
		f.shows(a, "early")
		f.run(a)
		f.shows(f.s, "early")
	}},

	{"publish_running", `Running is how many handlers run there, as far as [Marker] was told: of leases it holds that are Started, and neither Ended nor Stopping.`, func(f *fixture) {
		a, b := f.db.Open(), f.db.Open()
		f.publish(a, "a")
		f.publish(b, "b")
		m := f.marker(a)
		runs := func(when string, want ...int) {
			f.Helper()
			for _, s := range []storage.Store{a, b} {
				all, err := f.publisher(s).Published(f.ctx)
				f.must(err)
				var got []int
				for _, p := range all {
					if p.Doc != nil {
						got = append(got, p.Running)
					}
				}
				if !slices.Equal(got, want) {
					f.Errorf("%s: %v handlers run, want %v", when, got, want)
				}
			}
		}
		runs("leased", 0, 0)
		f.add(times(4, newJob())...)
		all := f.lease(a, 4)
		for _, l := range all {
			f.must(m.Started(l.Lease, f.now))
		}
		runs("started", 4, 0)
		f.must(m.Ended(all[0].Lease))
		runs("one has ended", 3, 0)
		f.must(m.Stopping(all[1].Lease))
		runs("one is stopped", 2, 0)
		f.must(m.Ended(all[1].Lease))
		runs("the one that is stopped has ended", 2, 0)
		f.apply(a, storage.Finish{Lease: all[2].Lease, Outcome: storage.OutcomeDone})
		runs("one is finished", 1, 0)
		f.must(m.Started(all[0].Lease, f.now))
		runs("the one that had ended is started again", 2, 0)
	}},

	{"publish_keeps", `Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		doc := []byte("one")
		f.publish(f.s, "none")
		f.must(f.publisher(f.s).Publish(doc))
		doc[0] = 'X'
		all, err := f.publisher(f.s).Published(f.ctx)
		f.must(err)
		all[0].Doc[1] = 'X'
		f.shows(f.s, "one")
	}},

	{"publish_end", `An instance that was closed shows nothing, one whose process is gone is not among them.`, func(f *fixture) {
		a, b, c := f.db.Open(), f.db.Open(), f.db.Open()
		f.publish(a, "one")
		f.publish(b, "two")
		f.publish(c, "three")
		f.begin(c, f.run(c).Lease)
		f.db.Kill(a)
		f.shows(f.s, "two three")
		f.must(b.Close())
		f.shows(f.s, "three")
		f.must(c.Close()) // its handler runs
		f.shows(f.s, "")
		if err := f.publisher(b).Publish([]byte("late")); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Publish after Close returned %v, want ErrClosed", err)
		}
		if _, err := f.publisher(b).Published(f.ctx); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Published after Close returned %v, want ErrClosed", err)
		}
	}},

	{"publish_whole", `None is a mixture of two.`, func(f *fixture) {
		a := f.db.Open()
		docs := []string{strings.Repeat("a", 50_000), strings.Repeat("b", 30_000)}
		f.publish(a, docs[0])
		p, reader := f.publisher(a), f.publisher(f.s)
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.Publish([]byte(docs[i%2])); err != nil {
					f.Error(err)
					return
				}
			}
		})
		for range 200 {
			all, err := reader.Published(f.ctx)
			if err != nil {
				f.Error(err)
			}
			for _, d := range all {
				if got := string(d.Doc); d.Doc != nil && got != docs[0] && got != docs[1] {
					f.Errorf("a document of %d bytes is neither of those published", len(got))
				}
			}
		}
		close(stop)
		writer.Wait()
	}},

	{"ahead", `Ahead counts, up to most, the jobs before a job. Of a ready job these are the ready jobs of its lane that an Exchange leases before it;
More is true if there are more than N.`, func(f *fixture) {
		soon := f.now.Add(-time.Second)
		ids := f.add(newJob(), newJob(), newJob(priority(1)), newJob(dueAt(soon)), newJob(priority(-1)), newJob(priority(1), dueAt(soon)))
		f.add(newJob(lane("other", kind), priority(9)), newJob(lane(queue, "other"), priority(9)), newJob(priority(9), delay(time.Hour)))
		for i, n := range []int{3, 4, 1, 2, 5, 0} {
			f.ahead(ids[i], 9, storage.Ahead{N: n})
			f.ahead(ids[i], n, storage.Ahead{N: n})
			if n > 0 {
				f.ahead(ids[i], n-1, storage.Ahead{N: n - 1, More: true})
			}
		}
		f.lease(f.s, 2)
		f.ahead(ids[1], 9, storage.Ahead{N: 2})
	}},

	{"ahead_states", `of any other, none.
It returns [ErrNotFound] if there is no live job.
Urgent is true of a job that goes before all others, see [Exchange].`, func(f *fixture) {
		first := f.run(f.s)
		ids := f.add(newJob(), newJob(), newJob(priority(-1), delay(time.Hour)))
		f.ahead(first.ID, 9, storage.Ahead{})
		f.ahead(ids[2], 9, storage.Ahead{})
		f.runNow(named(ids[1]), anyRun)
		f.ahead(ids[0], 9, storage.Ahead{})
		f.ahead(ids[1], 9, storage.Ahead{N: 1, Urgent: true})
		f.keep(time.Hour, f.s, storage.Finish{Lease: first.Lease, Outcome: storage.OutcomeDone})
		id := ids[0]
		for _, gone := range []storage.ID{first.ID, storage.NewID(f.now.Add(time.Hour), 1, id.Key())} {
			if _, err := f.s.Ahead(f.ctx, gone, 9); !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("Ahead of no live job returned %v, want ErrNotFound", err)
			}
		}
	}},

	{"check", `Oldest are the lanes that have ready jobs, each with the earliest due time of these, sorted by queue and kind.
Write is the error that an Enqueue would return now; nil if it would go through.
It returns [ErrClosed] as all calls do.`, func(f *fixture) {
		f.checks()
		early, late := f.now.Add(-time.Hour), f.now.Add(-time.Minute)
		f.add(newJob(lane("b", "x"), dueAt(late), priority(3)), newJob(lane("b", "x"), dueAt(early), priority(-3)), newJob(lane("b", "x"), dueAt(late)))
		f.add(newJob(lane("a", "y"), dueAt(late)), newJob(lane("a", "z"), delay(time.Hour)), newJob())
		f.checks(storage.LaneDue{Lane: storage.Lane{Queue: "a", Kind: "y"}, DueAt: late},
			storage.LaneDue{Lane: storage.Lane{Queue: "b", Kind: "x"}, DueAt: early}, storage.LaneDue{Lane: storage.Lane{Queue: queue, Kind: kind}, DueAt: f.now})
		f.lease(f.s, 1)
		f.checks(storage.LaneDue{Lane: storage.Lane{Queue: "a", Kind: "y"}, DueAt: late},
			storage.LaneDue{Lane: storage.Lane{Queue: "b", Kind: "x"}, DueAt: early})
		other := f.db.Open()
		f.must(other.Close())
		if _, err := other.Check(f.ctx); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Check after Close returned %v, want ErrClosed", err)
		}
	}},

	{"version", `Version returns a number that changes with every commit, of this process or another.
It writes nothing, and reads nothing of the jobs.`, func(f *fixture) {
		v, ok := f.s.(storage.Versioner)
		if !ok {
			f.skip("storage.Versioner")
		}
		version := func() int64 {
			f.Helper()
			n, err := v.Version(f.ctx)
			f.must(err)
			return n
		}
		other := f.db.Open()
		last := version()
		for _, c := range []struct {
			what   string
			commit func()
		}{
			{"a job and its lease", func() { f.run(f.s) }},
			{"a job", func() { f.add(newJob()) }},
			{"a job of another", func() {
				_, err := other.Enqueue(f.ctx, f.now, []storage.NewJob{newJob()})
				f.must(err)
			}},
			{"a setting, which wakes nobody", func() {
				f.configure(f.s, storage.Lane{Queue: queue}, storage.Settings{storage.SettingMaxDead: 7})
			}},
		} {
			c.commit()
			n := version()
			if n == last {
				f.Errorf("%s: the version is still %d", c.what, n)
			}
			last = n
		}
		f.must(other.Close())
		if _, err := other.(storage.Versioner).Version(f.ctx); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Version after Close returned %v, want ErrClosed", err)
		}
	}},
}

// checks checks the condition of a store that can be written.
func (f *fixture) checks(want ...storage.LaneDue) {
	f.Helper()
	c, err := f.s.Check(f.ctx)
	f.must(err)
	if c.Write != nil || c.Free < -1 || !slices.Equal(c.Oldest, want) {
		f.Errorf("the condition is %+v, want the lanes %v", c, want)
	}
}
