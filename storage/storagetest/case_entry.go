package storagetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

var entryCases = []testCase{
	{"entry_put", `PutEntries writes entries, or deletes those with Delete, all of them or none
Entry returns an entry, or [ErrNotFound].
Revision is that of the entry's last write.
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		a, b := newEntry("a", "", "1"), newEntry("b", "f", "")
		a.Doc = noise(64 << 10)
		given := []storage.Entry{a, b}
		given[0].Doc = noise(64 << 10)
		r := f.putEntries(given...)
		clear(given[0].Doc)
		a.Revision, b.Revision = r, r
		a.CreatedAt, a.UpdatedAt, b.CreatedAt, b.UpdatedAt = f.now, f.now, f.now, f.now
		f.hasEntry(a)
		f.hasEntry(b)
		got, err := f.topics(f.s).Entry(f.ctx, "c", "a")
		f.must(err)
		clear(got.Doc)
		f.hasEntry(a)
		f.hasEntry(storage.Entry{Class: "d", Name: "a"})
		f.later(time.Second)
		b.Doc, b.UpdatedAt = []byte("2"), f.now
		b.Revision = f.putEntries(deleted(a), b)
		f.hasEntry(storage.Entry{Class: "c", Name: "a"})
		f.hasEntry(b)
	}},

	{"entry_stale", `An entry with a Revision of zero must not be there; any other must be there with its Revision. Else PutEntries writes nothing and returns [ErrStale].`, func(f *fixture) {
		a := newEntry("a", "f", "1")
		first := f.putEntries(a)
		a.Doc = []byte("2")
		second := f.putEntries(at(a, first))
		f.stale("a new one that is there", newEntry("z", "", ""), a)
		f.stale("at a revision before", newEntry("z", "", ""), at(a, first))
		f.stale("at a revision to come", at(a, second+1), newEntry("z", "", ""))
		f.stale("deleted at a revision before", newEntry("z", "", ""), deleted(at(a, first)))
		f.stale("deleted without a revision", deleted(a))
		f.stale("one that is not there", at(newEntry("b", "f", ""), second))
		f.stale("deleted that is not there", deleted(at(newEntry("b", "f", ""), second)))
		f.entries("c", "", "", 10, 0, "a")
		f.entries("c", "f", "", 10, second, "a")
		a.CreatedAt, a.UpdatedAt = f.now, f.now
		f.hasEntry(at(a, second))
		f.putEntries(deleted(at(a, second)))
		f.stale("one that is deleted", at(a, second))
	}},

	{"entry_revision", `It returns the Revision that the entries and their families have then: it is higher than any before, also if an entry of this name was deleted.`, func(f *fixture) {
		a, b, alone := newEntry("a", "f", ""), newEntry("b", "g", ""), newEntry("n", "", "")
		last := int64(0)
		higher := func(entries ...storage.Entry) int64 {
			r := f.putEntries(entries...)
			if r <= last {
				f.Errorf("PutEntries returned the revision %d after %d", r, last)
			}
			last = r
			return r
		}
		first := higher(a)
		f.entries("c", "f", "", 10, first, "a")
		second := higher(at(a, first), b)
		f.entries("c", "f", "", 10, second, "a")
		f.entries("c", "g", "", 10, second, "b")
		third := higher(deleted(at(a, second)))
		f.entries("c", "f", "", 10, third)
		f.entries("c", "g", "", 10, second, "b")
		higher(alone)
		f.entries("c", "f", "", 10, third)
		fifth := higher(a)
		f.entries("c", "f", "", 10, fifth, "a")
		f.s = f.db.Open()
		higher(at(a, fifth))
	}},

	{"entry_keeps", `An entry keeps the Family and the CreatedAt that it was first written with.`, func(f *fixture) {
		a := newEntry("a", "f", "1")
		r := f.putEntries(a)
		a.CreatedAt = f.now
		f.later(time.Minute)
		other := a
		other.Family, other.CreatedAt = "g", f.now
		a.Revision, a.UpdatedAt = f.putEntries(at(other, r)), f.now
		f.hasEntry(a)
		f.entries("c", "g", "", 10, 0)
		f.entries("c", "f", "", 10, a.Revision, "a")
		gone := a
		gone.Family = "g"
		last := f.putEntries(deleted(gone))
		f.entries("c", "f", "", 10, last)
		f.entries("c", "g", "", 10, 0)
		other.Revision, other.UpdatedAt = f.putEntries(other), f.now
		f.hasEntry(other)
	}},

	{"entry_list", `Entries lists the entries of a class, at most limit of them, sorted by name, those whose name is greater than after. If family is not empty, it lists only those of the family. It returns the revision of the family as of the same moment, zero if family is empty or has never had an entry.`, func(f *fixture) {
		other := newEntry("b", "f", "")
		other.Class = "d"
		r := f.putEntries(newEntry("c", "f", ""), newEntry("a", "f", ""), other, newEntry("B", "", ""), newEntry("b", "g", ""), newEntry("d/1", "f", ""))
		f.entries("c", "", "", 10, 0, "B", "a", "b", "c", "d/1")
		f.entries("c", "", "a", 2, 0, "b", "c")
		f.entries("c", "", "d/1", 10, 0)
		f.entries("c", "f", "", 10, r, "a", "c", "d/1")
		f.entries("c", "f", "a", 1, r, "c")
		f.entries("c", "f", "", 0, r)
		f.entries("d", "f", "", 10, r, "b")
		f.entries("c", "h", "", 10, 0)
		f.entries("e", "", "", 10, 0)
	}},

	{"entry_race", `any other must be there with its Revision.
It is safe for concurrent use.`, func(f *fixture) {
		const callers, rounds = 4, 10
		stores := []storage.Topics{f.topics(f.s), f.topics(f.db.Open())}
		revision := f.putEntries(newEntry("a", "f", ""))
		for range rounds {
			var won, last atomic.Int64
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					r, err := stores[c%2].PutEntries(f.ctx, f.now, []storage.Entry{at(newEntry("a", "f", string(rune('0'+c))), revision)})
					switch {
					case err == nil:
						won.Add(1)
						last.Store(r)
					case !errors.Is(err, storage.ErrStale):
						f.Errorf("PutEntries: %v", err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				f.Fatalf("%d of %d callers wrote an entry that they had all read at one revision", won.Load(), callers)
			}
			revision = last.Load()
		}
	}},

	{"topics_closed", `later ones return [ErrClosed]
A context that ends before a write has begun withdraws it and returns the context's error`, func(f *fixture) {
		t := f.topics(f.s)
		calls := f.topicCalls()
		for name, call := range calls {
			if err := call(f.endedCtx()); !errors.Is(err, f.endedCtx().Err()) && name != "Entry" && name != "Entries" && name != "Message" && name != "MessageWith" && name != "Messages" {
				f.Errorf("%s with a context that has ended: %v", name, err)
			}
		}
		f.hasEntry(newEntry("closed", "", ""))
		if _, err := t.Message(f.ctx, "closed"); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("the message that was withdrawn: %v", err)
		}
		f.must(f.s.Close())
		for name, call := range calls {
			if err := call(f.ctx); !errors.Is(err, storage.ErrClosed) {
				f.Errorf("%s after Close: %v, want ErrClosed", name, err)
			}
		}
	}},
}
