package storagetest

import (
	"errors"
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

var compactCases = []testCase{
	{"compact", `Compact returns free space to the file system, and says how many bytes. It changes nothing that other methods return.
It returns [ErrClosed] as all calls do.`, func(f *fixture) {
		s, ok := f.s.(storage.Compacter)
		if !ok {
			f.skip("storage.Compacter")
		}
		large := func(n *storage.NewJob) { n.Args = make([]byte, 100_000) }
		ids := f.add(newJob(large), newJob(large, delay(time.Hour)), newJob(large), newJob(large), newJob(large))
		dead := f.lease(f.s, 1)[0]
		f.keep(time.Hour, f.s, storage.Finish{Lease: dead.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Failure: &storage.NewFailure{Error: "no"}})
		for _, id := range ids[3:] {
			_, err := f.s.Cancel(f.ctx, f.now, id, storage.Retention{})
			f.must(err)
		}
		f.lease(f.s, 1)
		all := func() (out []any) {
			for _, id := range ids[:3] {
				r, err := f.s.Job(f.ctx, id)
				f.must(err)
				out = append(out, r)
			}
			counts, err := f.s.Counts(f.ctx)
			f.must(err)
			return append(out, counts)
		}
		before := all()
		freed, err := s.Compact(f.ctx)
		f.must(err)
		if freed < 0 {
			f.Errorf("Compact has given %d bytes back", freed)
		}
		if after := all(); !reflect.DeepEqual(after, before) {
			f.Errorf("Compact has changed %v to %v", before, after)
		}
		other := f.db.Open()
		f.must(other.Close())
		if _, err := other.(storage.Compacter).Compact(f.ctx); !errors.Is(err, storage.ErrClosed) {
			f.Errorf("Compact after Close returned %v, want ErrClosed", err)
		}
	}},
}
