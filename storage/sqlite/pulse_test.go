package sqlite_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A holder that shows that it lives keeps its leases also from one who waits
// already to take them.
func TestPulse_BeforeALeaseIsTaken(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	ctx, length := context.Background(), 30*time.Second
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0]
	reclaim := func(mono time.Duration) []storage.Reclaimed {
		got, err := b.Reclaim(ctx, t0, mono, length, 10)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	reclaim(0)
	release := b.Stall()
	taken := make(chan []storage.Reclaimed)
	go func() { taken <- reclaim(length) }()
	for b.Waiting() == 0 {
		runtime.Gosched()
	}
	if err := a.Pulse(); err != nil {
		t.Fatal(err)
	}
	release()
	if got := <-taken; len(got) != 0 {
		t.Errorf("%d leases were taken from a holder that lives", len(got))
	}
	if n := len(reclaim(2*length - 1000)); n != 0 {
		t.Errorf("%d leases were taken before they have looked the same for a lease", n)
	}
	if err := a.Started(l.Lease, t0); err != nil { // is noted elsewhere
		t.Fatal(err)
	}
	if n := len(reclaim(3 * length)); n != 1 {
		t.Errorf("%d leases were taken that have lapsed, want 1", n)
	}
	if err := os.Remove(d.path + "-instance-1"); err != nil {
		t.Fatal(err)
	}
	if err := a.Pulse(); err == nil {
		t.Error("a pulse that nobody can see")
	}
}
