package rowstest

import (
	"reflect"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// enqueue adds a job with the unique key u, and returns it as it is to be read.
func (f *fixture) enqueue(j storage.NewJob) rules.Keeper {
	f.Helper()
	j.Queue, j.Kind, j.Unique, j.Args = queue, kind, "u", []byte("[1]")
	out, err := f.s.Enqueue(f.Context(), now, []storage.NewJob{j})
	f.must(err)
	id, at := out[0].ID, now.UnixMicro()
	return rules.Keeper{Job: id.Key(), Created: at, Until: rules.Until(&j, at, at), Salt: id.Salt()}
}

// end leases a job, and ends it.
func (f *fixture) end(o storage.Outcome) {
	f.Helper()
	f.exchange(0, storage.Finish{Lease: f.exchange(1)[0].Lease, Outcome: o, Reason: storage.ReasonPermanent})
}

// key reads the key u for a job with a Conflict.
func (f *fixture) key(c *storage.Conflict) (key rules.Key) {
	f.Helper()
	f.must(f.db.Rows(f.s, func(load load) error {
		tx, err := load(rules.Need{Keys: []rules.NeedKey{{Name: "u", Conflict: c}}})
		if err != nil {
			return err
		}
		k, err := tx.Key("u", c)
		if err == nil {
			key = *k
		}
		return err
	}))
	return key
}

// waiting returns a job as enqueue has added it.
func waiting(s storage.State, attempts int) *rules.Waiter {
	at := now.UnixMicro()
	return &rules.Waiter{State: s, Created: at, Due: at, Counters: storage.Counters{Attempt: attempts}, Args: []byte("[1]")}
}

// keyCases are keys as calls leave them, and what is read of them for a job that may change
// the one that waits.
var keyCases = []struct {
	what  string
	build func(f *fixture) (want rules.Key)
}{
	{"nobody has it", func(*fixture) rules.Key { return rules.Key{} }},
	{"a job has it that waits", func(f *fixture) rules.Key {
		return rules.Key{Holder: f.enqueue(storage.NewJob{}), Live: true, Waiter: waiting(storage.Ready, 0)}
	}},
	{"a job has it that runs", func(f *fixture) rules.Key {
		k := rules.Key{Holder: f.enqueue(storage.NewJob{UniqueFor: time.Hour}), Live: true, Waiter: waiting(storage.Running, 1)}
		f.exchange(1)
		return k
	}},
	{"one waits behind a job that runs", func(f *fixture) rules.Key {
		holder := f.enqueue(storage.NewJob{})
		f.exchange(1)
		behind := f.enqueue(storage.NewJob{UniqueFor: time.Hour, Conflict: &storage.Conflict{Mode: storage.Replace}})
		return rules.Key{Holder: holder, Behind: behind, Live: true, Waiter: waiting(storage.Blocked, 0)}
	}},
	{"one waits behind, and for a date", func(f *fixture) rules.Key {
		holder := f.enqueue(storage.NewJob{})
		f.exchange(1)
		date := now.Add(time.Hour)
		behind := f.enqueue(storage.NewJob{DueAt: date, Conflict: &storage.Conflict{Mode: storage.Replace}})
		w := waiting(storage.Blocked, 0)
		w.Due = date.UnixMicro()
		return rules.Key{Holder: holder, Behind: behind, Live: true, Waiter: w, Dated: true}
	}},
	{"it has gone to the job behind", func(f *fixture) rules.Key {
		f.enqueue(storage.NewJob{})
		leased := f.exchange(1)
		behind := f.enqueue(storage.NewJob{UniqueScope: storage.UniqueForever, Conflict: &storage.Conflict{Mode: storage.Replace}})
		f.exchange(0, storage.Finish{Lease: leased[0].Lease, Outcome: storage.OutcomeDone})
		return rules.Key{Holder: behind, Live: true, Waiter: waiting(storage.Ready, 0)}
	}},
	{"its holder has ended", func(f *fixture) rules.Key {
		f.enqueue(storage.NewJob{})
		f.end(storage.OutcomeDone)
		return rules.Key{}
	}},
	{"its holder has ended, has it for a time, and is kept", func(f *fixture) rules.Key {
		f.keep = time.Hour
		k := rules.Key{Holder: f.enqueue(storage.NewJob{UniqueFor: time.Hour}), Kept: true}
		f.end(storage.OutcomeDone)
		return k
	}},
	{"its holder is dead, and has it for ever", func(f *fixture) rules.Key {
		k := rules.Key{Holder: f.enqueue(storage.NewJob{UniqueScope: storage.UniqueForever}), Kept: true}
		f.end(storage.OutcomeDead)
		return k
	}},
	{"its holder has gone, and has it for a time", func(f *fixture) rules.Key {
		k := rules.Key{Holder: f.enqueue(storage.NewJob{UniqueFor: time.Hour})}
		f.end(storage.OutcomeDone)
		return k
	}},
	{"its time was ended", func(f *fixture) rules.Key {
		k := rules.Key{Holder: f.enqueue(storage.NewJob{UniqueFor: time.Hour}), Live: true, Waiter: waiting(storage.Ready, 0)}
		_, err := f.s.ReleaseUnique(f.Context(), "u")
		f.must(err)
		k.Holder.Until = 0
		return k
	}},
}

func (f *fixture) compareKey(got, want rules.Key) {
	f.Helper()
	want.Name, want.Were = "u", [2]rules.Keeper{want.Holder, want.Behind}
	if got.Waiter != nil && want.Waiter != nil && !reflect.DeepEqual(got.Waiter, want.Waiter) {
		f.Errorf("\n got %+v waiting\nwant %+v", *got.Waiter, *want.Waiter)
	}
	if want.Waiter != nil && got.Waiter != nil {
		got.Waiter = want.Waiter
	}
	if got != want {
		f.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func loadWaitsForKey(f *fixture, o Overlapping) {
	n := rules.Need{Keys: []rules.NeedKey{{Name: "u"}}}
	f.waits(o, n, n) // nobody has it
	f.enqueue(storage.NewJob{})
	f.waits(o, n, n)
}

func keysLockedFirst(f *fixture, o Overlapping) {
	need := func(keys ...string) (n rules.Need) {
		for _, key := range keys {
			n.Keys = append(n.Keys, rules.NeedKey{Name: key})
		}
		return n
	}
	var wg sync.WaitGroup
	f.loadAll(func() {
		wg.Go(func() {
			n := need("z", "a")
			n.Groups = []string{name("g")}
			f.loadAll(func() {}, n)
		})
		o.Waits()                       // for a
		f.loadAll(func() {}, need("z")) // so the other has locked neither z
		f.load(func() {}, name("g"))    // nor the group
	}, need("a"))
	wg.Wait()
}

func loadWaitsForItsGroup(f *fixture, o Overlapping) {
	f.limit(2) // so that a group is locked, and not its members
	f.enqueue(storage.NewJob{Group: "g"})
	replaces := &storage.Conflict{Mode: storage.Replace}
	f.waits(o, rules.Need{Groups: []string{name("g")}}, rules.Need{Keys: []rules.NeedKey{{Name: "u", Conflict: replaces}}})
}
