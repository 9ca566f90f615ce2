//go:build unix && !openbsd

package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/errandq/errand/storage"
)

// What is not there any more cannot be noted, and does not end the process.
func TestStarted_InstanceFileCutOff(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 2)
	leased := lease(t, s, 2, "a")
	if err := s.Started(leased[0].Lease, t0); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("%s-instance-%d", d.path, s.InstanceNumber())
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Started(leased[1].Lease, t0); !errors.Is(err, storage.ErrIO) {
		t.Errorf("Started: %v, want ErrIO", err)
	}
	if err := s.Ended(leased[0].Lease); !errors.Is(err, storage.ErrIO) {
		t.Errorf("Ended: %v, want ErrIO", err)
	}
}
