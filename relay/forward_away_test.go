package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// The gate asks when its time has come, later each time, and only while somebody waits for it.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, fault := 0, errors.New("no route")
		g := newAway(time.Second, func(context.Context) error { asks++; return fault })
		open := func() bool { open, _, _ := g.State(); return open }
		if !open() {
			t.Error("a new gate is closed")
		}
		_ = g.shut("no route", 0)
		time.Sleep(time.Hour)
		if asks != 0 {
			t.Errorf("%d asks while nobody waits", asks)
		}
		if open() {
			t.Error("it is open")
		}
		_, reason, changed := g.State()
		if reason != "no route" {
			t.Errorf("reason %q", reason)
		}
		<-changed
		if asks != 1 || open() {
			t.Errorf("%d asks", asks)
		}
		fault = nil
		_, _, changed = g.State()
		<-changed
		if !open() || asks != 2 {
			t.Errorf("after an ask that was answered it is closed, after %d asks", asks)
		}
		for range 20 {
			_ = g.shut("no route", 0)
		}
		if left := time.Until(g.until); left > 5*time.Second {
			t.Errorf("after requests that have failed together it asks in %v", left)
		}
		fault = errors.New("no route")
		for range 20 {
			_, _, changed = g.State()
			<-changed
		}
		if left := time.Until(g.until); left < 4*time.Minute || left > 6*time.Minute {
			t.Errorf("after many failures it asks in %v", left)
		}
		g.reached()
		fault = nil
		_, _, changed = g.State()
		<-changed
		_ = g.shut("no route", 0)
		if left := time.Until(g.until); left < 800*time.Millisecond || left > 1200*time.Millisecond {
			t.Errorf("after it was reached it asks in %v", left)
		}
		synctest.Wait()
	})
}

// What the server has said of when to come counts, also if something was to be asked earlier.
func TestAway_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked []time.Duration
		g := newAway(time.Second, func(context.Context) error {
			asked = append(asked, time.Since(begin).Round(time.Minute))
			return nil
		})
		_ = g.shut("no answer", 0)
		_, _, changed := g.State()
		_ = g.shut("status 429", 30*time.Minute)
		_ = g.shut("no answer", 0) // of a request that was under way
		for open := false; !open; open, _, changed = g.State() {
			<-changed
		}
		if want := []time.Duration{30 * time.Minute}; !slices.Equal(asked, want) {
			t.Errorf("asked after %v, want %v", asked, want)
		}
		_ = g.shut("status 429", 24*time.Hour)
		if left := time.Until(g.until); left != mostHeeded {
			t.Errorf("a day is heeded for %v", left)
		}
	})
}

// forward is Forward for tests that look into it, without the gate of Options.
func (d *device) forward(t testing.TB, w *errand.Worker) *forwarder {
	t.Helper()
	f := &forwarder{queue: d.Queue, options: d.options}
	if err := errors.Join(f.validate(), f.open(t.Context())); err != nil {
		t.Fatal(err)
	}
	errand.HandleQueue(w, "up", f.pass, errand.BatchOptions{Max: wire.MaxJobs, MaxBytes: mostBytes, ByGroup: true, Whole: true}, errand.HandlerOptions{Gate: f.away})
	return f
}

func (d *device) worker() *errand.Worker {
	return errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
}

// wantUnspent says that nothing of the jobs is used up.
func (d *device) wantUnspent(t testing.TB) {
	t.Helper()
	all := must(d.Jobs(context.WithoutCancel(t.Context()), errand.JobFilter{Queue: "up"}, &errand.ListOptions{Limit: 1000})).Jobs
	if len(all) == 0 {
		t.Error("there are no jobs")
	}
	for _, j := range all {
		if j.Retry != 0 || j.Crashes != 0 || j.State == errand.Dead {
			t.Errorf("something is used up: %+v", j)
		}
	}
}

// A server that refuses the key has it be asked for again, and the device goes on with the new one.
func TestForward_key(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var mu sync.Mutex
			calls := 0
			f.said = func(_ wire.Head, _ []wire.Job, a *wire.Answer) bool {
				mu.Lock()
				defer mu.Unlock()
				if calls < 3 {
					a.Status, a.Error = status, "no"
				}
				return calls < 3
			}
			d := newDevice(t, f)
			d.options.Streams = 1
			d.options.Key = func(context.Context) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				return testSeed, nil
			}
			d.add(t, 20, none)
			d.run(t)
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
			f.wantOnce(t, 20)
			d.wantUnspent(t)
			if mu.Lock(); calls != 3 {
				t.Errorf("the key was asked for %d times, want 3", calls)
			}
			mu.Unlock()
		})
	}
}

// A key that cannot be read is an outage.
func TestForward_noKey(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	lines := []string{"", "secret", serverSeed, testSeed} // the last but one is another device's
	var mu sync.Mutex
	d.options.Key = func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		line := lines[0]
		if len(lines) > 1 {
			lines = lines[1:]
		}
		if line == "" {
			return "", errors.New("no card")
		}
		return line, nil
	}
	lines = slices.Delete(lines, 2, 3) // the fake answers another device's key with what is not signed
	d.add(t, 20, none)
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 20 })
	f.wantOnce(t, 20)
	d.wantUnspent(t)
}

// What a busy server says of when to come is heeded, and nothing is used up.
func TestForward_retryAfter(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, kind := range []ratchet.Kind{ratchet.AskCheck, ratchet.Send} {
			t.Run(fmt.Sprint(status, kind), func(t *testing.T) {
				t.Parallel()
				server := newFake(t)
				server.said = func(h wire.Head, _ []wire.Job, a *wire.Answer) bool {
					if h.Kind == kind {
						a.Status, a.RetryAfter, a.Error = status, 1800, "come later"
					}
					return h.Kind == kind
				}
				d := newDevice(t, server)
				d.options.Streams = 1
				w := d.worker()
				f := d.forward(t, w)
				d.add(t, 20, none)
				d.start(t, w)
				until(t, "the gate is closed", func() bool { open, _ := f.away.is(); return !open })
				f.away.mu.Lock()
				left := time.Until(f.away.until)
				reason := f.away.reason
				f.away.mu.Unlock()
				if left < 20*time.Minute || left > 30*time.Minute {
					t.Errorf("it is closed for %v, want half an hour", left)
				}
				if want := fmt.Sprintf("hub has answered with status %d: come later", status); reason != want {
					t.Errorf("reason %q, want %q", reason, want)
				}
				until(t, "all are back", func() bool { return d.count(t, errand.Ready) == 20 })
				d.wantUnspent(t)
				if n := len(server.taken()); n != 0 {
					t.Errorf("%d jobs came", n)
				}
			})
		}
	}
}

// number returns the n of a reading.
func number(j wire.Job) int {
	var r reading
	_ = json.Unmarshal(j.Args, &r)
	return r.N
}

// heal is a fault that a test takes away.
type heal struct {
	mu   sync.Mutex
	well bool
}

func (h *heal) ill() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.well }
func (h *heal) cure()     { h.mu.Lock(); defer h.mu.Unlock(); h.well = true }

// A server that fails three times about a request gets a smaller one. A job about which it fails alone uses up
// a retry, and keeps back its group and nothing else.
func TestForward_failed(t *testing.T) {
	f := newFake(t)
	const bad = 3
	type sent struct {
		jobs  int
		fails bool
	}
	var requests []sent // with jobs
	var fault heal
	f.said = func(h wire.Head, jobs []wire.Job, a *wire.Answer) bool {
		fails := fault.ill() && slices.ContainsFunc(jobs, func(j wire.Job) bool { return number(j) == bad })
		if len(jobs) > 0 {
			requests = append(requests, sent{len(jobs), fails})
		}
		if fails {
			a.Status, a.Error = http.StatusInternalServerError, "out of order"
		}
		return fails
	}
	d := newDevice(t, f)
	d.Close()
	d.opened = &errand.Options{Policy: policy.Policy{Retries: 3, MinDelayRetries: 3, MinDelay: time.Hour, MaxDelay: time.Hour}}
	d.open(t)
	d.options.Streams = 1
	d.add(t, 8, func(i int) string { // 3, 4 and 5 are of the group of the bad one
		if i >= bad && i < 6 {
			return "g"
		}
		return ""
	})
	d.run(t)
	until(t, "the job has failed", func() bool {
		return d.count(t, errand.Done) == 5 && d.count(t, errand.Scheduled) == 1
	})
	all := must(d.Jobs(t.Context(), errand.JobFilter{States: []errand.State{errand.Scheduled}}, nil)).Jobs
	if j := all[0]; j.Retry != 1 || j.Error != "errand: relay: the server has answered with status 500: out of order" || j.Group != "g" {
		t.Errorf("the job that failed is %+v", j)
	}
	for _, j := range f.taken() {
		if j.Group == "g" {
			t.Errorf("%d of the group of a job that has failed came before that job", number(j))
		}
	}
	f.mu.Lock()
	// The fourth may be without the bad job: then the server takes it, and a larger one may follow. Others may have
	// come before the third. A bad job that has come alone gives way to any.
	rs := requests[slices.IndexFunc(requests, func(r sent) bool { return r.fails }):]
	if len(rs) < 3 || !rs[1].fails || !rs[2].fails || rs[2].jobs > 1 && (len(rs) == 3 || rs[3].jobs > rs[2].jobs/2) {
		t.Errorf("the requests were %v: want three that fail, and a fourth with half the jobs of the third at most", rs)
	}
	f.mu.Unlock()
	fault.cure()
	must(d.RunNow(t.Context(), errand.JobFilter{All: true}, nil))
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 8 })
	f.wantOnce(t, 8)
	f.wantInOrder(t)
}

// wantInOrder says that the jobs of each group came in their order.
func (f *fake) wantInOrder(t testing.TB) {
	t.Helper()
	last := map[string]int{}
	for _, j := range f.taken() {
		if n, ok := last[j.Group]; ok && j.Group != "" && number(j) < n {
			t.Errorf("%d of group %s came after %d", number(j), j.Group, n)
		}
		last[j.Group] = number(j)
	}
}

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }

func (l *logged) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

func (d *device) log() *logged {
	l := &logged{}
	d.options.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// A job that the server has taken has got through, also if the answer was lost: of many in a row none is kept back.
func TestForward_answersLost(t *testing.T) {
	f := newFake(t)
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		if h.Kind == ratchet.Send {
			answer(httptest.NewRecorder())
			panic(http.ErrAbortHandler)
		}
		answer(w)
	}
	d := newDevice(t, f)
	d.options.Streams = 1
	d.run(t)
	for i := range alikeAlone + 1 {
		id := d.put(t, errand.JobOptions{})
		var j errand.JobInfo
		until(t, "the job is done, or kept back", func() bool {
			j = d.info(t, id)
			return j.State == errand.Done || j.State == errand.Scheduled
		})
		if j.State != errand.Done {
			t.Fatalf("job %d is %s until %v, want it done", i, j.State, j.DueAt)
		}
	}
	f.wantOnce(t, alikeAlone+1)
}

// A job that does not get through alone, whoever is to blame, waits with its group. It is named, and
// nothing is used up.
func TestForward_aside(t *testing.T) {
	const bad = 3
	for what, between := range map[string]func(w http.ResponseWriter){
		"413":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusRequestEntityTooLarge) },
		"no answer": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"a portal":  func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "sign in") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var fault heal
			alone := 0
			f.between = func(_ wire.Head, jobs []wire.Job, w http.ResponseWriter) {
				if fault.ill() && slices.ContainsFunc(jobs, func(j wire.Job) bool { return number(j) == bad }) {
					if f.mu.Lock(); len(jobs) == 1 {
						alone++
					}
					f.mu.Unlock()
					between(w)
				}
			}
			d := newDevice(t, f)
			log := d.log()
			d.options.Streams = 1
			d.add(t, 8, func(i int) string {
				if i >= bad && i < 6 {
					return "g"
				}
				return ""
			})
			d.run(t)
			until(t, "the job is kept back", func() bool {
				return d.count(t, errand.Done) == 5 && d.count(t, errand.Scheduled) == 1
			})
			j := must(d.Jobs(t.Context(), errand.JobFilter{States: []errand.State{errand.Scheduled}}, nil)).Jobs[0]
			if j.Snoozes != 1 || j.Group != "g" {
				t.Errorf("the job that is kept back is %+v", j)
			}
			d.wantUnspent(t)
			until(t, "the job is named in the log", func() bool { return log.has("does not get through", "job="+j.ID.String()) })
			f.mu.Lock()
			if want := map[string]int{"413": 1, "no answer": alikeAlone, "a portal": alike}[what]; alone != want {
				t.Errorf("it was tried alone %d times, want %d", alone, want)
			}
			f.mu.Unlock()
			fault.cure()
			must(d.RunNow(t.Context(), errand.JobFilter{All: true}, nil))
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == 8 })
			f.wantOnce(t, 8)
			f.wantInOrder(t)
		})
	}
}

// While the server is away nothing is written about it, however often it is asked.
func TestForward_darkDay(t *testing.T) {
	server := newFake(t)
	server.around = func(wire.Head, http.ResponseWriter, func(http.ResponseWriter)) { panic(http.ErrAbortHandler) }
	d := newDevice(t, server)
	w := d.worker()
	f := d.forward(t, w)
	d.add(t, 20, none)
	d.start(t, w)
	until(t, "the gate is closed, and all are back", func() bool {
		open, _ := f.away.is()
		return !open && d.count(t, errand.Ready) == 20
	})
	entries := func() (all []string) {
		for _, class := range []string{queueClass, outClass, keptClass, sentClass, missingClass} {
			page, _, err := f.rows.Entries(t.Context(), class, "", "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				all = append(all, fmt.Sprint(e.Class, e.Name, e.Revision))
			}
		}
		return all
	}
	jobs := func() (all []string) {
		for _, j := range must(d.Jobs(t.Context(), errand.JobFilter{Queue: "up"}, nil)).Jobs {
			all = append(all, fmt.Sprint(j.ID, j.State, j.Attempt, j.DueAt))
		}
		return all
	}
	_ = f.probe(t.Context()) // the first makes this process the owner of its stream
	was, wereJobs := entries(), jobs()
	for range 30 {
		if f.probe(t.Context()) == nil {
			t.Fatal("a probe that was not answered has gone well")
		}
	}
	if is := entries(); !slices.Equal(is, was) || len(is) != 5 {
		t.Errorf("entries were written:\n%s\n%s", was, is)
	}
	if is := jobs(); !slices.Equal(is, wereJobs) {
		t.Errorf("jobs were written:\n%s\n%s", wereJobs, is)
	}
}
