package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// takeAway ends the leases of all jobs of a file as another process may that takes its holder for dead. They
// are due after a delay.
func (d *device) takeAway(t testing.TB, delay time.Duration) {
	t.Helper()
	file, err := sqlx.Open("sqlite", d.path)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	var leases []struct{ ID, Token int64 }
	if err := file.Select(&leases, `SELECT id, token FROM errand_job WHERE state = 3`); err != nil {
		t.Error(err)
	}
	x, outcome := storage.Exchange{LeaseDuration: time.Minute}, storage.OutcomeReturned
	if delay > 0 {
		outcome = storage.OutcomeSnooze
	}
	for _, l := range leases {
		x.Finish = append(x.Finish, storage.Finish{Lease: storage.Lease{Key: l.ID, Token: l.Token}, Outcome: outcome, DueAt: time.Now().Add(delay)})
	}
	store, err := sqlite.Open(d.path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer store.Close()
	if _, err := store.Exchange(context.Background(), time.Now(), x); err != nil || len(leases) == 0 {
		t.Errorf("%d leases: %v", len(leases), err)
	}
}

// firstSend calls fn once, before the first send with jobs is answered, and after it was taken.
func (f *fake) firstSend(fn func()) {
	first := true
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if f.mu.Lock(); !first || h.Kind != ratchet.Send {
			f.mu.Unlock()
			answer(w)
			return
		}
		first = false
		f.mu.Unlock()
		r := httptest.NewRecorder()
		answer(r)
		fn()
		copyAnswer(r, w)
	}
}

// A job whose lease is lost while it is under way is on the server. What became of it is kept, it ends when it is
// leased again, and it is never sent again.
func TestForward_leaseLost(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Streams = 1
	d.add(t, 20, func(i int) string { return []string{"", "g"}[i%2] })
	f.firstSend(func() { d.takeAway(t, 0) })
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
	f.wantOnce(t, 20)
}

// What is kept of jobs whose leases were lost outlives the process.
func TestForward_leaseLostRestart(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Streams = 1
	d.add(t, 20, none)
	n := 0
	f.judge = func(j wire.Job) (ratchet.Outcome, string) {
		if n++; n == 5 {
			return ratchet.Refused, "no fifth"
		}
		return ratchet.Enqueued, ""
	}
	f.firstSend(func() { d.takeAway(t, time.Hour) })
	w := d.worker()
	of := d.forward(t, w)
	stop := d.start(t, w)
	until(t, "all is kept", func() bool { of.mu.Lock(); defer of.mu.Unlock(); return len(of.kept) == 20 })
	stop()
	d.Close()
	d.open(t)
	if all := must(Queues(t.Context(), d.Queue)); all[0].Kept != 20 {
		t.Fatalf("%+v: want 20 kept", all)
	}
	f.change(func() {
		f.said = func(_ wire.Head, jobs []wire.Job, _ *wire.Answer) bool {
			if len(jobs) > 0 {
				t.Errorf("%d jobs were sent again", len(jobs))
			}
			return false
		}
	})
	must(d.RunNow(t.Context(), errand.JobFilter{All: true}, nil))
	d.run(t)
	until(t, "all have ended", func() bool { return d.count(t, errand.Done) == 19 && d.count(t, errand.Dead) == 1 })
	f.wantOnce(t, 19)
	if j := must(d.DeadLetters().List(t.Context(), errand.JobFilter{}, nil)).Jobs[0]; j.Error != "errand: relay: the server has refused the job: no fifth" || j.Reason != errand.ReasonPermanent {
		t.Errorf("dead: %s, %q", j.Reason, j.Error)
	}
	f.change(func() { f.said = nil })
	// Its refusal was kept without the attempt in which it died.
	must(d.DeadLetters().Redrive(t.Context(), errand.JobFilter{All: true}, nil))
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
	f.wantOnce(t, 20)
}

// A refused job whose process has died before it was buried is buried by the next one, and sent again once it
// is redriven.
func TestForward_refusedAndKilled(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	w := d.worker()
	of := d.forward(t, w)
	id := d.put(t, errand.JobOptions{})
	// The commit of the verdict, in the first attempt, after which the process has died.
	v := keptDoc{Outcome: ratchet.Refused, Reason: "not here", Attempt: 1, Queue: "up", N: 1}
	if _, err := of.rows.PutEntries(t.Context(), []storage.Entry{{Class: keptClass, Name: id.String(), Doc: docOf(v)}}); err != nil {
		t.Fatal(err)
	}
	d.start(t, w)
	if j := d.wait(t, id, errand.Dead); j.Error != errRefused("not here", false).Error() || j.Reason != errand.ReasonPermanent {
		t.Errorf("dead: %s, %q", j.Reason, j.Error)
	}
	f.wantOnce(t, 0)
	must(d.DeadLetters().Redrive(t.Context(), errand.JobFilter{All: true}, nil))
	d.wait(t, id, errand.Done)
	f.wantOnce(t, 1)
	if len(must(of.rows.kept(t.Context()))) != 0 {
		t.Error("the refusal is still kept")
	}
}

// A job that is cancelled here while it is under way is on the server: it stays cancelled here, and is named.
func TestForward_cancelled(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Streams = 1
	log := d.log()
	d.add(t, 9, none)
	id := d.put(t, errand.JobOptions{})
	f.firstSend(func() { must(d.Cancel(t.Context(), id)) })
	d.run(t)
	until(t, "all have ended", func() bool { return d.count(t, errand.Done) == 9 && d.count(t, errand.Cancelled) == 1 })
	d.wait(t, id, errand.Cancelled)
	f.wantOnce(t, 10)
	until(t, "the job is named in the log", func() bool {
		return log.has("a job was cancelled here, and is on the server", "job="+id.String())
	})
}

// What is kept of jobs that have ended is deleted, and nothing else.
func TestForward_sweep(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	log := d.log()
	of := d.forward(t, d.worker())
	put := func(o ratchet.Outcome, id errand.ID) {
		e := storage.Entry{Class: keptClass, Name: id.String(), Doc: docOf(keptDoc{Outcome: o, Reason: "r", Queue: "up"})}
		if _, err := of.rows.PutEntries(t.Context(), []storage.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []errand.ID
	for range 6 {
		ids = append(ids, d.put(t, errand.JobOptions{}))
	}
	cancelled, refused, dead, deadThere, live := ids[0], ids[1], ids[2], ids[3], ids[4]
	must(d.Cancel(t.Context(), cancelled))
	must(d.Cancel(t.Context(), refused))
	other := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
	errand.Handle(other, func(_ context.Context, job *errand.Job[reading]) error {
		if job.ID == dead || job.ID == deadThere {
			return errand.Permanent(errors.New("no"))
		}
		return errand.Snooze(time.Hour, nil)
	})
	stop := d.start(t, other)
	d.wait(t, dead, errand.Dead)
	d.wait(t, deadThere, errand.Dead)
	stop()
	put(ratchet.Enqueued, cancelled)
	put(ratchet.Refused, refused)
	put(ratchet.Refused, dead)
	put(ratchet.Enqueued, deadThere)
	put(ratchet.Enqueued, live)
	gone := errand.ID{1}
	put(ratchet.Enqueued, gone)
	of.kept = must(of.rows.kept(t.Context()))
	if err := of.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := must(of.rows.kept(t.Context()))
	for id := range left {
		if id != live && id != deadThere {
			t.Errorf("what is kept of %s is still there", id)
		}
	}
	if len(left) != 2 || len(of.kept) != 2 {
		t.Errorf("%d are kept, and %d known: want 2", len(left), len(of.kept))
	}
	until(t, "the job is named in the log", func() bool {
		return log.has("a job has ended here as cancelled, and is on the server", "job="+cancelled.String())
	})
	if logs.Wait(of.log); log.has("job=" + refused.String()) {
		t.Errorf("the log is\n%s", &log.b)
	}
}

// Lists of sends go when they are older than Keep. Of those of a stream one is left, empty, as long as others are.
func TestForward_sweepSends(t *testing.T) {
	d := newDevice(t, newFake(t))
	of := d.forward(t, d.worker())
	streams := []ratchet.ID{newID(), newID()}
	slices.SortFunc(streams, func(a, b ratchet.ID) int { return slices.Compare(a[:], b[:]) })
	put := func(stream int, n uint64) {
		e := storage.Entry{Class: sentClass, Name: sentName(streams[stream], n), Doc: idBytes([]storage.ID{{1}})}
		if _, err := of.rows.PutEntries(t.Context(), []storage.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(before time.Time) (text string) {
		t.Helper()
		if err := of.rows.dropSent(t.Context(), "up", before); err != nil {
			t.Fatal(err)
		}
		if err := of.rows.each(t.Context(), sentClass, func(e storage.Entry) error {
			i := slices.IndexFunc(streams, func(id ratchet.ID) bool { return sentName(id, numberOf(e.Name)) == e.Name })
			text += fmt.Sprintf(" %d/%d:%d", i, numberOf(e.Name), len(e.Doc))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	for n := range uint64(60) {
		put(0, n)
	}
	put(1, 5)
	// The times of entries are those of the store's clock: a time between two entries tells them apart.
	e, err := of.rows.Entry(t.Context(), sentClass, sentName(streams[1], 5))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the clock has moved", func() bool { return d.Clock().Now.Sub(e.UpdatedAt) > 5*time.Millisecond })
	first := d.Clock().Now
	put(0, 60)
	put(1, 6)
	put(1, 7)
	if got, want := left(first), " 0/59:0 0/60:16 1/5:0 1/6:16 1/7:16"; got != want {
		t.Errorf("left%s, want%s", got, want)
	}
	if got, want := left(first), " 0/59:0 0/60:16 1/5:0 1/6:16 1/7:16"; got != want {
		t.Errorf("again: left%s, want%s", got, want)
	}
	// The empty ones were just written, and the lists behind them are as old as they are.
	e, err = of.rows.Entry(t.Context(), sentClass, sentName(streams[1], 7))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := left(e.UpdatedAt.Add(time.Millisecond)), " 0/60:0 1/7:0"; got != want {
		t.Errorf("after the next ones are old: left%s, want%s", got, want)
	}
}

// Lists of sends go by the Keep of their own queue, also beside other queues whose names begin alike.
func TestForward_sweepOwnSends(t *testing.T) {
	d := newDevice(t, newFake(t))
	lists := func(f *forwarder) (names []string) {
		for _, s := range f.streams {
			row := must(f.rows.read(t.Context(), f.options.Queue, s.index))
			names = append(names, sentName(row.ID, 1))
		}
		return names
	}
	var all []*forwarder
	for _, queue := range []string{"up", "up/00", "up2"} {
		o := d.options
		o.Queue = queue
		if queue != "up" {
			o.Keep = -1
		}
		f := &forwarder{queue: d.Queue, options: o}
		if err := errors.Join(f.validate(), f.open(t.Context())); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	given := sentName(newID(), 1) // of a stream that one of them has given up
	rows := all[0].rows
	for _, name := range append(slices.Concat(lists(all[0]), lists(all[1]), lists(all[2])), given) {
		must(rows.PutEntries(t.Context(), []storage.Entry{{Class: sentClass, Name: name, Doc: idBytes([]storage.ID{{1}})}}))
	}
	last := must(rows.Entry(t.Context(), sentClass, given)).UpdatedAt
	until(t, "the clock has moved", func() bool { return d.Clock().Now.After(last) })
	for swept, f := range all[:2] {
		if err := f.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, of := range all {
			for _, name := range lists(of) {
				if e := must(rows.Entry(t.Context(), sentClass, name)); (len(e.Doc) == 0) != (i == 1 && swept == 1) {
					t.Errorf("after the sweep of queue %s a list of queue %s has %d bytes", f.options.Queue, of.options.Queue, len(e.Doc))
				}
			}
		}
		if e := must(rows.Entry(t.Context(), sentClass, given)); len(e.Doc) == 0 {
			t.Errorf("after the sweep of queue %s the list that is of no queue is gone", f.options.Queue)
		}
	}
}

// After a while without jobs the server is told that it can forget the verdicts.
func TestForward_settleIdle(t *testing.T) {
	server := newFake(t)
	empty := 0
	server.said = func(h wire.Head, jobs []wire.Job, _ *wire.Answer) bool {
		if h.Kind == ratchet.Send && len(jobs) == 0 {
			empty++
		}
		return false
	}
	verdicts := func() (n int) {
		server.mu.Lock()
		defer server.mu.Unlock()
		for _, s := range server.streams {
			n += len(s.S.Verdicts)
		}
		return n
	}
	d := newDevice(t, server)
	d.options.Streams = 1
	w := d.worker()
	of := d.forward(t, w)
	d.add(t, 20, none)
	d.start(t, w)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
	s := of.streams[0]
	until(t, "the stream has nothing to do", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return !s.running })
	if verdicts() != 20 || s.idle == nil {
		t.Errorf("the server has %d verdicts, want 20; there is a timer: %t", verdicts(), s.idle != nil)
	}
	_ = of.away.shut("no carrier", time.Hour)
	s.settleIdle()
	if verdicts() != 20 {
		t.Error("settled with a closed gate")
	}
	of.away.mu.Lock()
	of.away.closed = false
	of.away.mu.Unlock()
	s.settleIdle()
	if verdicts() != 0 || empty != 1 {
		t.Errorf("the server has %d verdicts after %d empty sends", verdicts(), empty)
	}
	s.settleIdle()
	if empty != 1 {
		t.Errorf("%d empty sends: what is settled is settled again", empty)
	}
	d.add(t, 5, none)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 25 })
	server.wantOnce(t, 25)
}
