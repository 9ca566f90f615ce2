package relay

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// heldThere reports whether the server holds a stream of the device.
func (h *hub) heldThere(t testing.TB) bool {
	for _, d := range must(Devices(context.WithoutCancel(t.Context()), h.Queue)) {
		for _, s := range d.Streams {
			if s.Held {
				return true
			}
		}
	}
	return false
}

// A card is cloned, and both copies run. The stream is held and named on both sides, and after Accept the jobs
// that both have come once, and so do those that each has alone.
func TestBoth_clone(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.add(t, 100, none)
	stop := d.run(t)
	until(t, "100 are done", func() bool { return d.count(t, errand.Done) == 100 })
	stop()
	d.add(t, 60, none) // both have them
	d.Close()
	clone := &device{path: filepath.Join(t.TempDir(), "clone.db"), options: d.options}
	copyFile(t, d.path, clone.path)
	d.open(t)
	clone.open(t)
	d.add(t, 40, none)
	clone.add(t, 30, none)
	d.run(t)
	until(t, "all of the first are done", func() bool { return d.count(t, errand.Done) == 200 })
	clone.run(t)
	until(t, "the clone is held", func() bool { return clone.held(t) })
	if !h.heldThere(t) {
		t.Error("the server holds no stream")
	}
	if n := len(must(Missing(t.Context(), clone.Queue))); n != 0 {
		t.Errorf("%d lists of what the server lacks, which lacks nothing", n)
	}
	if n := len(h.origins(t)); n != 200 {
		t.Errorf("%d jobs are there before Accept, want 200", n)
	}
	d.add(t, 20, none) // the first one goes on, when it has asked
	until(t, "all is accepted, and all are done", func() bool {
		must(Accept(t.Context(), h.Queue, "pi-17"))
		return d.count(t, errand.Done) == 220 && clone.count(t, errand.Done) == 190
	})
	h.wantOnce(t, 250)
	until(t, "nothing is held", func() bool { return !d.held(t) && !clone.held(t) && !h.heldThere(t) })
}

// A device that keeps no jobs names the requests whose jobs a server lacks that was put back.
func TestBoth_missingUnkept(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.options.Streams, d.options.Keep = 1, -1
	h.close(t)
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, h.path, old)
	h.open(t)
	d.add(t, 30, none)
	w := d.worker()
	f := d.forward(t, w)
	stop := d.start(t, w)
	until(t, "all are done, and not kept", func() bool {
		return len(must(d.Jobs(context.WithoutCancel(t.Context()), errand.JobFilter{Queue: "up"}, nil)).Jobs) == 0
	})
	stop()
	n := f.row0().N
	h.close(t)
	copyFile(t, old, h.path)
	h.open(t)
	d.add(t, 10, none)
	d.run(t)
	until(t, "it is held", func() bool { return d.held(t) })
	all := must(Missing(t.Context(), d.Queue))
	if len(all) != 1 || len(all[0].Jobs) != 0 || all[0].From != 1 || all[0].To != n-1 {
		t.Errorf("missing: %+v: want the requests 1 to %d", all, n-1)
	}
}

// What is not listed of a stream lacks as a range, unless nothing can be in it.
func TestMissing_range(t *testing.T) {
	d := newDevice(t, newFake(t))
	rows := d.forward(t, d.worker()).rows
	list, tombstone := idBytes([]storage.ID{{1}}), []byte{}
	for _, c := range []struct {
		name           string
		lists          map[uint64][]byte
		unlisted       bool
		before         uint64
		from, to, jobs uint64
	}{
		{name: "no list", before: 9, from: 3, to: 8},
		{name: "nothing between", before: 3},
		{name: "no jobs since the last list", lists: map[uint64][]byte{2: list}, before: 9},
		{name: "not listed since then", lists: map[uint64][]byte{1: tombstone}, unlisted: true, before: 9, from: 3, to: 8},
		{name: "lists that were dropped", lists: map[uint64][]byte{5: tombstone, 6: list}, before: 9, from: 3, to: 5, jobs: 1},
		{name: "lists", lists: map[uint64][]byte{3: list, 5: list}, before: 9, jobs: 2},
		{name: "lists from later", lists: map[uint64][]byte{9: list}, before: 9},
	} {
		id := newID()
		for n, doc := range c.lists {
			must(rows.PutEntries(t.Context(), []storage.Entry{{Class: sentClass, Name: sentName(id, n), Doc: doc}}))
		}
		row := storage.Entry{Class: missingClass, Name: sentName(id, c.before), Doc: docOf(missingDoc{Queue: "up", After: 2, Before: c.before, Unlisted: c.unlisted})}
		must(rows.PutEntries(t.Context(), []storage.Entry{row}))
		for _, l := range must(Missing(t.Context(), d.Queue)) {
			if l.name == row.Name && (l.From != c.from || l.To != c.to || len(l.Jobs) != int(c.jobs)) {
				t.Errorf("%s: the requests %d to %d, and %d jobs: want %d to %d, and %d", c.name, l.From, l.To, len(l.Jobs), c.from, c.to, c.jobs)
			}
		}
	}
}

// The server is put back to an older copy, while the device does not keep its jobs any more: what is missing is
// named as a range of requests, and cannot be sent again.
func TestBoth_missingTombstone(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.options.Streams = 1
	h.close(t)
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, h.path, old)
	h.open(t)
	d.add(t, 30, none)
	w := d.worker()
	f := d.forward(t, w)
	stop := d.start(t, w)
	until(t, "30 are done", func() bool { return d.count(t, errand.Done) == 30 })
	n := f.row0().N
	if err := f.rows.dropSent(t.Context(), "up", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	d.add(t, 20, none)
	until(t, "50 are done", func() bool { return d.count(t, errand.Done) == 50 })
	stop()
	h.close(t)
	copyFile(t, old, h.path)
	h.open(t)
	d.add(t, 10, none)
	d.run(t)
	until(t, "it is held", func() bool { return d.held(t) })
	all := must(Missing(t.Context(), d.Queue))
	if len(all) != 1 {
		t.Fatalf("%d lists, want 1: %+v", len(all), all)
	}
	l := all[0]
	if len(l.Jobs) != 20 || l.From != 1 || l.To != n-1 || l.Queue != "up" || l.FoundAt.IsZero() {
		t.Errorf("missing: %d jobs, and the requests %d to %d: want 20, and 1 to %d", len(l.Jobs), l.From, l.To, n-1)
	}
	until(t, "all is accepted, and all are done", func() bool {
		must(Accept(t.Context(), h.Queue, ""))
		return d.count(t, errand.Done) == 60
	})
	h.wantOnce(t, 10)
	if again := must(Resend(t.Context(), d.Queue)); again != 20 {
		t.Errorf("%d were sent again, want 20", again)
	}
	until(t, "what was sent again is there", func() bool { return len(h.origins(t)) == 30 })
	if n := len(must(Missing(t.Context(), d.Queue))); n != 0 {
		t.Errorf("%d lists are left", n)
	}
	if again := must(Resend(t.Context(), d.Queue)); again != 0 {
		t.Errorf("%d were sent again twice", again)
	}
}

// row0 returns the row of the first stream, of which nothing is under way.
func (f *forwarder) row0() outRow {
	f.streams[0].work <- struct{}{}
	defer f.streams[0].release()
	return f.streams[0].row
}

// The server is put back and jobs were deleted meanwhile: on the device those that it lacks can be named and not sent
// again, and what the server has deleted and knows it took is not missing.
func TestBoth_putBackAndPurged(t *testing.T) {
	h, private, public := newHub(t)
	d := h.device(t, private, public)
	d.add(t, 40, none)
	stop := d.run(t)
	until(t, "40 are done", func() bool { return d.count(t, errand.Done) == 40 })
	stop()
	must(h.Delete(t.Context(), errand.JobFilter{All: true})) // of the server
	h.close(t)
	old := filepath.Join(t.TempDir(), "old.db")
	copyFile(t, h.path, old)
	h.open(t)
	d.add(t, 40, none)
	stop = d.run(t)
	until(t, "80 are done", func() bool { return d.count(t, errand.Done) == 80 })
	stop()
	h.close(t)
	copyFile(t, old, h.path)
	h.open(t)
	d.add(t, 10, none)
	d.run(t)
	until(t, "all is accepted, all are done, and 40 are missing", func() bool { // a stream may have none of the 10, and ask later
		must(Accept(t.Context(), h.Queue, "pi-17"))
		missing := map[errand.ID]bool{}
		for _, l := range must(Missing(t.Context(), d.Queue)) {
			for _, id := range l.Jobs {
				missing[id] = true
			}
		}
		return d.count(t, errand.Done) == 90 && len(missing) == 40
	})
	if n := must(d.Delete(t.Context(), errand.JobFilter{States: []errand.State{errand.Done}})); n != 90 {
		t.Errorf("%d were deleted on the device", n)
	}
	if again := must(Resend(t.Context(), d.Queue)); again != 0 {
		t.Errorf("%d that are deleted were sent again", again)
	}
	if n := len(must(Missing(t.Context(), d.Queue))); n != 0 {
		t.Errorf("%d lists are left", n)
	}
}

// One stream of several is held: nothing is sent on any until Accept, also by a process that starts meanwhile.
func TestForward_oneHeld(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			server := newFake(t)
			d := newDevice(t, server)
			w := d.worker()
			f := d.forward(t, w)
			held := f.streams[2]
			row, err := f.rows.read(t.Context(), "up", held.index)
			if err != nil {
				t.Fatal(err)
			}
			// The server knows another past of the stream.
			server.streams[row.ID] = ratchet.Server{N: 7, T: ratchet.Token{7}, P: ratchet.Token{6}}
			d.add(t, 1, func(int) string { return groupOf(f, held.index) })
			stop := d.start(t, w)
			until(t, "the stream is held", func() bool { return d.held(t) })
			if _, reason := f.away.is(); restart {
				stop()
			} else {
				until(t, "the gate says why", func() bool { _, reason = f.away.is(); return strings.HasPrefix(reason, "stream 2 is held") })
			}
			var mu sync.Mutex
			asks, sent := 0, 0
			server.change(func() {
				server.said = func(h wire.Head, jobs []wire.Job, _ *wire.Answer) bool {
					mu.Lock()
					defer mu.Unlock()
					if h.Kind == ratchet.Ask && h.Stream == row.ID {
						asks++
					}
					sent += len(jobs)
					return false
				}
			})
			d.add(t, 40, func(int) string { return groupOf(f, 0) })
			want := 41
			if restart { // by a process that has no job for the stream
				must(d.CancelAll(t.Context(), errand.JobFilter{Queue: "up", Group: groupOf(f, held.index)}))
				want = 40
				d.run(t)
			}
			until(t, "it has asked again", func() bool { mu.Lock(); defer mu.Unlock(); return asks >= 3 || sent > 0 })
			if mu.Lock(); sent != 0 {
				t.Errorf("%d jobs were sent", sent)
			}
			mu.Unlock()
			server.change(func() {
				server.said = nil
				server.streams[row.ID] = server.streams[row.ID].Accept(ratchet.Token{8})
			})
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == want })
			server.wantOnce(t, want)
			until(t, "nothing is held", func() bool { return !d.held(t) })
		})
	}
}

// groupOf returns a group of a stream.
func groupOf(f *forwarder, stream int) string {
	for i := 0; ; i++ {
		g := fmt.Sprint("g", i)
		if f.streamOf(&errand.Job[errand.RawArgs]{Group: g}) == stream {
			return g
		}
	}
}

// A stream that is held asks often, and writes nothing when the answer is the same.
func TestForward_heldWritesNothing(t *testing.T) {
	server := newFake(t)
	d := newDevice(t, server)
	d.options.Streams = 1
	w := d.worker()
	f := d.forward(t, w)
	d.add(t, 20, none)
	d.start(t, w)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
	server.mu.Lock()
	server.streams[f.row0().ID] = ratchet.Server{N: 1, T: ratchet.Token{7}, P: ratchet.Token{6}} // it was put back
	server.mu.Unlock()
	d.add(t, 1, none)
	until(t, "the stream is held", func() bool { return d.held(t) })
	entry := func() storage.Entry {
		e, err := f.rows.Entry(t.Context(), outClass, outName("up", 0))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	was := entry()
	for range 5 {
		if f.probe(t.Context()) == nil {
			t.Fatal("the stream is not held")
		}
	}
	if is := entry(); is.Revision != was.Revision {
		t.Error("the row of a stream that is still held was written")
	}
	if n := len(must(Missing(t.Context(), d.Queue))); n != 1 {
		t.Errorf("%d lists of what the server lacks, want 1", n)
	}
}

// The streams of a device whose name goes on with a slash are none of another file of this one.
func TestRows_begun(t *testing.T) {
	h, _, _ := newHub(t)
	begin := func(device string, stream ratchet.ID) bool {
		other := false
		if err := inTx(t.Context(), h.Queue, func(_ *sql.Tx, in rows) (err error) {
			if _, other, err = in.begun(t.Context(), device, stream); err != nil {
				return err
			}
			return in.putStream(t.Context(), streamName(device, stream), streamRow{Server: ratchet.Server{N: 1}})
		}); err != nil {
			t.Fatal(err)
		}
		return other
	}
	for _, c := range []struct {
		device string
		stream ratchet.ID
		other  bool
	}{
		{"pi-17/1", ratchet.ID{1}, false},
		{"pi-17", ratchet.ID{2}, false},
		{"pi-17", ratchet.ID{2, 15: 1}, false},
		{"pi-17/1", ratchet.ID{1, 15: 1}, false},
		{"pi-17", ratchet.ID{3}, true},
		{"pi-17/1", ratchet.ID{2}, true},
	} {
		if got := begin(c.device, c.stream); got != c.other {
			t.Errorf("stream %x of %s: another file %t, want %t", c.stream, c.device, got, c.other)
		}
	}
}

// A device begins as many streams as may be, and those go on when there are no more. Streams of others are not counted.
func TestHandler_manyStreams(t *testing.T) {
	h, private, public := newHub(t)
	for _, device := range []string{"pi-17", "pi-17/1"} {
		if err := inTx(t.Context(), h.Queue, func(_ *sql.Tx, in rows) error {
			var all []storage.Entry
			for i := range maxStreams - 2 {
				doc := streamRow{Server: ratchet.Server{N: 1}}.encode()
				all = append(all, storage.Entry{Class: classStream, Name: streamName(device, ratchet.ID{1, byte(i), byte(i >> 8)}), Doc: doc})
			}
			_, err := in.PutEntries(t.Context(), all)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	d := h.device(t, private, public)
	f := d.forward(t, d.worker())
	ask := func(stream ratchet.ID) wire.Answer {
		_, r := ratchet.Owner{}.AskCheck(newID())
		a := must(f.exchange(t.Context(), stream, r, nil))
		_, r = ratchet.Owner{Phase: ratchet.MustConfirm}.Ask(newID())
		r.Check = a.Answer.Check
		return must(f.exchange(t.Context(), stream, r, nil))
	}
	streams := []ratchet.ID{newID(), newID(), newID()}
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusForbidden} {
		a := ask(streams[i])
		if a.Status != want || want == http.StatusForbidden && !strings.Contains(a.Error, "1000 streams") {
			t.Errorf("stream %d: status %d %q, want %d", i, a.Status, a.Error, want)
		}
		if info := must(GetDevice(t.Context(), h.Queue, "pi-17")); info.Full != (i > 0) || len(info.Streams) != maxStreams-1+min(i, 1) {
			t.Errorf("stream %d: the device has %d, full %t", i, len(info.Streams), info.Full)
		}
	}
	if a := ask(streams[0]); a.Status != http.StatusOK || a.Answer.Status != ratchet.Taken {
		t.Errorf("status %d %d of a stream that has begun", a.Status, a.Answer.Status)
	}
	if all := must(Devices(t.Context(), h.Queue)); len(all) != 1 || !all[0].Full {
		t.Errorf("%d devices: want one, which is full", len(all))
	}
}
