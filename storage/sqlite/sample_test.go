package sqlite_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// newest returns the last sample of a store.
func newest(t *testing.T, s *sqlite.Store) storage.Sample {
	t.Helper()
	all, err := s.History(context.Background(), time.Time{})
	if err != nil || len(all) == 0 {
		t.Fatalf("History gave %v, %v", all, err)
	}
	return all[len(all)-1]
}

// A sample has what calls before it in the same transaction have done, and nothing of those after.
func TestSample_OfABatch(t *testing.T) {
	s := newDB(t, nil).open()
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, t0, append(one(), one()...)); err != nil {
		t.Fatal(err)
	}
	leased := lease(t, s, 2, "a")
	mark := t0.Truncate(storage.SampleEach).Add(storage.SampleEach)
	release, errs := s.Stall(), make(chan error, 2)
	go func() {
		x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: leased[0].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}}}
		_, err := s.Exchange(ctx, mark.Add(-time.Millisecond), x)
		errs <- err
	}()
	for s.Waiting() < 1 {
		runtime.Gosched()
	}
	go func() {
		_, err := s.Enqueue(ctx, mark.Add(time.Millisecond), one())
		errs <- err
	}()
	for s.Waiting() < 2 {
		runtime.Gosched()
	}
	release()
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	got := newest(t, s)
	want := storage.SampledLane{Lane: storage.Lane{Queue: "default", Kind: "a"}, Total: storage.Totals{Enqueued: 2, Dead: 1}, Running: 1, Dead: 1}
	if !got.At.Equal(mark) || len(got.Lanes) != 1 || got.Lanes[0] != want {
		t.Errorf("the sample is %+v, want %+v", got, want)
	}
}

// If samples, or what they are read from, are damaged, work that has begun can be ended all the same.
//
//errand:shows damaged samples | | running jobs end, and what happened is not known
func TestSample_Damaged(t *testing.T) {
	for _, table := range []string{"errand_sample", "errand_job_ready"} {
		d := newDB(t, nil)
		s := d.open()
		ctx := context.Background()
		if _, err := s.Enqueue(ctx, t0, append(one(), one()...)); err != nil {
			t.Fatal(err)
		}
		leased := lease(t, s, 2, "a")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		d.damage(table)
		s = d.open()
		for i, l := range leased {
			now := t0.Add(time.Duration(i+1) * storage.SampleEach)
			x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}}
			r, err := s.Exchange(ctx, now, x)
			if err != nil || r.Finished[0] != storage.Applied {
				t.Errorf("%s damaged: the end of job %d gave %v, %v", table, i, r.Finished, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a build that takes no samples has done belongs to no time.
func TestSample_OfAnOlderBuild(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	if _, err := s.Enqueue(context.Background(), t0, one()); err != nil {
		t.Fatal(err)
	}
	if got := newest(t, s); got.Unknown {
		t.Errorf("at first: %+v", got)
	}
	d.exec("UPDATE errand_number SET n = ?1 WHERE id = 5", t0.Add(2*storage.SampleEach).UnixMicro())
	if got := newest(t, s); !got.Unknown || !got.At.Equal(t0.Truncate(storage.SampleEach).Add(storage.SampleEach)) {
		t.Errorf("after a write without a sample: %+v", got)
	}
}

// A visit to the far future costs no more than a day of samples, and what was done there is in none.
func TestSample_AfterAWrongClock(t *testing.T) {
	s := newDB(t, nil).open()
	ctx := context.Background()
	at := t0.Truncate(time.Hour)
	write := func(now time.Time) {
		t.Helper()
		if _, err := s.Enqueue(ctx, now, one()); err != nil {
			t.Fatal(err)
		}
	}
	const kept = 60
	for i := range kept {
		write(at.Add(time.Duration(i) * storage.SampleEach))
	}
	now := at.Add((kept - 1) * storage.SampleEach)
	write(now.AddDate(0, 1, 0))
	now = now.Add(3 * storage.SampleEach)
	for after := int64(0); ; {
		next, err := s.StepClock(ctx, now, after)
		if err != nil {
			t.Fatal(err)
		}
		if after = next; after == 0 {
			break
		}
	}
	all, err := s.History(ctx, time.Time{})
	if err != nil || len(all) < kept-24 {
		t.Fatalf("%d samples are left, %v", len(all), err)
	}
	last := all[len(all)-2:]
	if !last[0].Unknown || !last[0].At.Equal(now.Add(-2*storage.SampleEach)) || last[1].Unknown || !last[1].At.Equal(now) || last[1].Lanes[0].Total.Enqueued != kept+1 {
		t.Errorf("the last samples are %+v", last)
	}
}
