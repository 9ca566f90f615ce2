package relay_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

func TestPutDevice(t *testing.T) {
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	s := serve(t, &errand.Options{Clock: func() time.Time { return now }}, nil)
	d := s.device("b", relay.Rights{Kinds: []string{"k"}, BytesADay: 1 << 20})
	s.shared("a")
	d.send(job("k"), job("x"))
	got := must(relay.Devices(t.Context(), s.q))(t)
	if len(got) != 2 || len(got[1].Streams) != 1 {
		t.Fatalf("devices %+v", got)
	}
	bytes := got[1].Counts.Bytes
	counts := relay.Counts{Enqueued: 1, Refused: 1, Bytes: bytes}
	want := []relay.DeviceInfo{
		{Name: "a", KeyKind: "hmac-sha256", CreatedAt: now},
		{
			Name: "b", KeyKind: "ed25519-public", PublicKey: got[1].PublicKey, CreatedAt: now, Rights: relay.Rights{Kinds: []string{"k"}, BytesADay: 1 << 20}, LastSeen: now, Counts: counts,
			Streams: []relay.StreamInfo{{ID: hexID(wire.ID(d.stream)), LastSeen: now, N: 2, Counts: counts}},
		},
	}
	for i := range got { // in whatever zone
		got[i].CreatedAt, got[i].LastSeen = got[i].CreatedAt.UTC(), got[i].LastSeen.UTC()
		for j := range got[i].Streams {
			got[i].Streams[j].LastSeen = got[i].Streams[j].LastSeen.UTC()
		}
	}
	if bytes < 100 || !strings.HasPrefix(got[1].PublicKey, "ed25519-public:") || !reflect.DeepEqual(got, want) {
		t.Errorf("devices %+v\nwant %+v", got, want)
	}
	if err := relay.Revoke(t.Context(), s.q, "b"); err != nil {
		t.Fatal(err)
	}
	if got := s.info("b").RevokedAt; !got.Equal(now) {
		t.Errorf("revoked at %v", got)
	}
	if a := d.request(ratchet.Request{ID: newID(), Kind: ratchet.AskCheck}); a.Status != http.StatusForbidden {
		t.Errorf("status %d of a check", a.Status)
	}
	now = now.Add(time.Hour)
	if err := relay.Revoke(t.Context(), s.q, "b"); err != nil || s.info("b").RevokedAt.Equal(now) {
		t.Errorf("revoked again: %v, %v", err, s.info("b").RevokedAt)
	}
	// It comes back as it was.
	for range 2 {
		if err := relay.Restore(t.Context(), s.q, "b"); err != nil {
			t.Fatal(err)
		}
	}
	if b := s.info("b"); !b.RevokedAt.IsZero() || b.PublicKey != got[1].PublicKey || !reflect.DeepEqual(b.Rights, got[1].Rights) {
		t.Errorf("restored as %+v", b)
	}
	if got := outcomes(d.send(job("k"), job("x"))); got != "er" {
		t.Errorf("outcomes %q after it is back", got)
	}
	if err := relay.Restore(t.Context(), s.q, "c"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("error %v of a device that is not there", err)
	}
	if err := relay.Revoke(t.Context(), s.q, "b"); err != nil {
		t.Fatal(err)
	}
	// It comes back with another key, and goes on with its stream.
	back := s.device("b", relay.Rights{})
	back.stream, back.owner = d.stream, d.owner
	if got := outcomes(back.send(job("x"))); got != "e" || !s.info("b").RevokedAt.IsZero() || s.info("b").Counts.Enqueued != 3 {
		t.Errorf("outcomes %q, device %+v", got, s.info("b"))
	}
	if err := relay.Revoke(t.Context(), s.q, "c"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("error %v of a device that is not there", err)
	}
}

func TestPutDevice_refuses(t *testing.T) {
	q := openQueue(t, filepath.Join(t.TempDir(), "jobs.db"), nil)
	private, public := relay.NewKey()
	for field, change := range map[string]func(*relay.Device){
		"name ":                  func(d *relay.Device) { d.Name = "a,b" },
		`key "..."`:              func(d *relay.Device) { d.Key = private },
		"rights.kinds 0":         func(d *relay.Device) { d.Rights.Kinds = []string{} },
		"rights.kinds 101":       func(d *relay.Device) { d.Rights.Kinds = make([]string, 101) },
		"rights.kinds[0]":        func(d *relay.Device) { d.Rights.Kinds = []string{"a b"} },
		"rights.queue":           func(d *relay.Device) { d.Rights.Queue = "errand.x" },
		"rights.min_priority":    func(d *relay.Device) { d.Rights.MinPriority = 1 },
		"100, the first":         func(d *relay.Device) { d.Rights.MaxPriority = 101 },
		"rights.bytes_a_day":     func(d *relay.Device) { d.Rights.BytesADay = -1 },
		"rights.shared_keys[0]":  func(d *relay.Device) { d.Rights.SharedKeys = []string{""} },
		"rights.shared_keys 101": func(d *relay.Device) { d.Rights.SharedKeys = make([]string, 101) },
	} {
		d := relay.Device{Name: "a", Key: public}
		change(&d)
		err := relay.PutDevice(t.Context(), q, d)
		if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), private[20:]) {
			t.Errorf("error %v: want one of %s", err, field)
		}
	}
	if all := must(relay.Devices(t.Context(), q))(t); len(all) != 0 {
		t.Errorf("devices %+v", all)
	}
}

// More devices than are on a page, and names that begin with each other.
func TestDevices_many(t *testing.T) {
	s := serve(t, nil, nil)
	for i := range 501 {
		s.shared(fmt.Sprintf("d/%03d", i))
	}
	s.device("d", relay.Rights{}).send(job("k"))
	s.device("d/000", relay.Rights{}).send(job("k"))
	all := must(relay.Devices(t.Context(), s.q))(t)
	if len(all) != 502 {
		t.Fatalf("%d devices", len(all))
	}
	for _, d := range all {
		if want := d.Name == "d" || d.Name == "d/000"; len(d.Streams) == 1 != want {
			t.Errorf("device %+v", d)
		}
		if one, err := relay.GetDevice(t.Context(), s.q, d.Name); err != nil || !reflect.DeepEqual(one, d) {
			t.Errorf("device %+v, %v, want %+v", one, err, d)
		}
	}
	var pages []relay.DeviceInfo
	for after := ""; ; after = pages[len(pages)-1].Name {
		page := must(relay.DevicesAfter(t.Context(), s.q, after, 200))(t)
		if pages = append(pages, page...); len(page) < 200 {
			break
		}
	}
	if !reflect.DeepEqual(pages, all) {
		t.Errorf("%d devices on pages, or others", len(pages))
	}
	if _, err := relay.GetDevice(t.Context(), s.q, "none"); !errors.Is(err, errand.ErrNotFound) {
		t.Error(err)
	}
}

// What the server keeps of a device does not grow with the jobs that have come and ended.
//
//errand:shows the file of a server | | The file of a server has as many bytes after 10,000 jobs of a device, which have ended, as after 100
func TestHandler_sameBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := serve(t, nil, nil)
	s.q = openQueue(t, path, &errand.Options{Retention: -1})
	s.h = s.handler(s.q, nil)
	d := s.device(deviceName, relay.Rights{})
	size := func(sends int) int64 {
		for range sends {
			all := make([]wire.Job, 100)
			for i := range all {
				all[i] = job("k", inGroup(fmt.Sprint(i)), withKey(fmt.Sprint(i)))
			}
			if got := outcomes(d.send(all...)); got != strings.Repeat("e", 100) {
				t.Fatalf("outcomes %q", got)
			}
			if n, err := s.q.CancelAll(t.Context(), errand.JobFilter{All: true}); err != nil || n.Changed != 100 {
				t.Fatalf("%+v cancelled: %v", n, err)
			}
		}
		d.send()
		if _, err := s.q.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		return must(os.Stat(path))(t).Size()
	}
	if a, b := size(1), size(99); a != b {
		t.Errorf("%d bytes after 100 jobs, %d after 10,000", a, b)
	}
}
