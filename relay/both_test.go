package relay

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
)

// TestBoth has a device and a server do what each does with a fake.
func TestBoth(t *testing.T) {
	hub := must(errand.Open(t.Context(), filepath.Join(t.TempDir(), "hub.db"), nil))
	t.Cleanup(func() { _ = hub.Close() })
	private, public := NewKey()
	serverKey, serverPublic := NewKey()
	if err := PutDevice(t.Context(), hub, Device{Name: "pi-17", Key: public}); err != nil {
		t.Fatal(err)
	}
	h := must(Handler(hub, &HandlerOptions{Server: "hub", Key: serverKey, Logger: slog.New(slog.DiscardHandler)}))
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	d := &device{path: filepath.Join(t.TempDir(), "device.db"), options: Options{
		Queue: "up", URL: s.URL, Server: "hub", Device: "pi-17", ServerKey: serverPublic,
		Key:    KeyText(private),
		Logger: slog.New(slog.DiscardHandler),
	}}
	d.open(t)
	d.add(t, 1000, none)
	d.add(t, 1000, func(i int) string { return fmt.Sprint("g", i%7) })
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 2000 })
	n := 0
	for _, c := range must(hub.Counts(t.Context())) {
		n += int(c.N)
	}
	if n != 2000 {
		t.Errorf("%d jobs on the server, want 2000", n)
	}
}
