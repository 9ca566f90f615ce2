package relay_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
)

// A cloned card is found, both copies wait until somebody accepts it, and what both have is enqueued once.
//
//errand:shows a cloned card | | After a hold was accepted one copy of a device goes on, and jobs that both copies have are enqueued once
func TestHandler_clone(t *testing.T) {
	s := serve(t, nil, nil)
	a := s.device(deviceName, relay.Rights{})
	common := job("k")
	a.send(job("k"))
	b := *a
	a.send(common)
	a.send(job("k"))
	if status, _ := b.ask(); status != ratchet.Forked {
		t.Fatalf("status %d", status)
	}
	if status, _ := a.ask(); status != ratchet.Held {
		t.Errorf("status %d of the other copy", status)
	}
	if info := s.info(deviceName); !info.Streams[0].Held {
		t.Errorf("device %+v", info)
	}
	for _, c := range []struct {
		name string
		n    int
		err  error
	}{{"pump-18", 0, errand.ErrNotFound}, {deviceName, 1, nil}, {deviceName, 0, nil}, {"", 0, nil}} {
		if n, err := relay.Accept(t.Context(), s.q, c.name); n != c.n || !errors.Is(err, c.err) {
			t.Errorf("accept %q: %d, %v", c.name, n, err)
		}
	}
	if status, _ := a.ask(); status != ratchet.Taken {
		t.Errorf("status %d of who goes on", status)
	}
	if status, set := b.ask(); status != ratchet.Renewed || !set.Renew {
		t.Errorf("status %d of the other copy", status)
	}
	if got := outcomes(b.send(common, job("k"))); got != "de" {
		t.Errorf("outcomes %q of the other copy", got)
	}
	s.wantJobs(4)
	if info := s.info(deviceName); len(info.Streams) != 2 || info.Counts.Enqueued != 4 || info.Counts.Duplicates != 1 {
		t.Errorf("device %+v", info)
	}
}

// The server is put back to a copy of its file: the device learns what is missing, and goes on once that is accepted.
func TestHandler_putBack(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	d.send(job("k"))
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := s.q.Backup(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	lost := job("k")
	d.send(lost)
	sent := d.owner.Row.N - 1
	s.q = openQueue(t, path, nil)
	s.h = s.handler(s.q, nil)
	status, set := d.ask()
	if status != ratchet.Forked || !set.Missing.Has(ratchet.ID(lost.ID), sent) {
		t.Fatalf("status %d, missing %+v", status, set.Missing)
	}
	if n, err := relay.Accept(t.Context(), s.q, ""); n != 1 || err != nil {
		t.Fatalf("accept: %d, %v", n, err)
	}
	if status, set = d.ask(); status != ratchet.Resumed || !set.Missing.Has(ratchet.ID(lost.ID), sent) {
		t.Fatalf("status %d, missing %+v", status, set.Missing)
	}
	if got := outcomes(d.send(lost, job("k"))); got != "ee" {
		t.Errorf("outcomes %q", got)
	}
	s.wantJobs(3)
}
