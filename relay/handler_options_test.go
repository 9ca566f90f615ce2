package relay_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/storage/sqlite"
)

// Authorize says what a device may, in place of its row. Its error refuses the request.
func TestHandler_authorize(t *testing.T) {
	rights, fault := relay.Rights{Kinds: []string{"a"}, Queue: "q"}, error(nil)
	s := serve(t, nil, &relay.HandlerOptions{Authorize: func(_ context.Context, device string) (relay.Rights, error) {
		if device != deviceName {
			t.Errorf("device %q", device)
		}
		return rights, fault
	}})
	d := s.device(deviceName, relay.Rights{Kinds: []string{"b"}})
	if got := outcomes(d.send(job("a"), job("b"))); got != "er" {
		t.Errorf("outcomes %q", got)
	}
	if all := jobsOf(t, s.q); len(all) != 1 || all[0].Queue != "q" {
		t.Errorf("jobs %+v", all)
	}
	_, r := d.owner.Send(newID())
	fault = errors.New("secret")
	if a := d.request(r, job("a")); a.Status != http.StatusForbidden || strings.Contains(a.Error, "secret") {
		t.Errorf("status %d %q", a.Status, a.Error)
	}
	// What Authorize gets wrong is no fault of the job.
	if fault, rights.Queue = nil, "no queue"; d.request(r, job("a")).Status != http.StatusInternalServerError {
		t.Error("a queue that cannot be is taken")
	}
	s.wantJobs(1)
}

func TestHandler_options(t *testing.T) {
	q := openQueue(t, filepath.Join(t.TempDir(), "jobs.db"), nil)
	private, public := relay.NewKey()
	for _, c := range []struct {
		o    *relay.HandlerOptions
		want string
	}{
		{nil, `server ""`},
		{&relay.HandlerOptions{Server: "a b", Key: private}, `server "a b"`},
		{&relay.HandlerOptions{Server: "a", Key: public}, "key"},
		{&relay.HandlerOptions{Server: "a", Key: relay.NewSharedKey()}, "key"},
		{&relay.HandlerOptions{Server: "a", Queue: "errand.x"}, "queue"},
		{&relay.HandlerOptions{Server: "a", MaxConcurrent: -1}, "max_concurrent"},
	} {
		if _, err := relay.Handler(q, c.o); !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v: want one of %s", c.o, err, c.want)
		}
	}
	relaxed := sqlite.Options{Durability: errand.Relaxed}
	store := must(sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &relaxed))(t)
	own := must(errand.New(t.Context(), store, quiet(nil)))(t)
	t.Cleanup(func() { _ = own.Close() })
	for _, q := range []*errand.Queue{own, openQueue(t, filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{SQLite: relaxed})} {
		if _, err := relay.Handler(q, &relay.HandlerOptions{Server: "a"}); !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), "durability") {
			t.Errorf("error %v of a queue that is relaxed", err)
		}
	}
}
