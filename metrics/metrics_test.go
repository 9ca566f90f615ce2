package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/metrics"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

// task is a kind whose handler does what it says.
type task struct{ Do string }

func (task) Kind() string { return "task" }

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB) (q *errand.Queue, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q, path
}

func enqueue(t testing.TB, q *errand.Queue, do, queue string) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), task{do}, &errand.JobOptions{Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	return e.ID
}

// work has a worker run jobs of queues until n have ended.
func work(t testing.TB, q *errand.Queue, n int, queues ...string) {
	t.Helper()
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: queues, Logger: quiet})
	errand.Handle(w, func(_ context.Context, job *errand.Job[task]) error {
		switch job.Args.Do {
		case "die":
			return errand.Permanent(errors.New("no"))
		case "cancel":
			return errand.Cancel(nil)
		case "retry":
			return errand.RetryAfter(time.Hour, errors.New("later"))
		}
		return nil
	})
	events, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventDone, errand.EventDead, errand.EventCancelled, errand.EventRetried}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	for range n {
		<-events.Events()
	}
	stop()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// scrape returns what a handler serves.
func scrape(t testing.TB, serve func(w *httptest.ResponseRecorder)) string {
	t.Helper()
	w := httptest.NewRecorder()
	serve(w)
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("served %d, %s", w.Code, got)
	}
	return w.Body.String()
}

// write returns what Write writes.
func write(t testing.TB, q *errand.Queue, o *metrics.Options) string {
	t.Helper()
	var b strings.Builder
	if err := metrics.Write(t.Context(), &b, q, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// values returns the values of the series in a text.
func values(t testing.TB, text string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if _, twice := all[line[:at]]; err != nil || twice {
			t.Fatalf("line %q: %v, twice: %t", line, err, twice)
		}
		all[line[:at]] = v
	}
	return all
}

// What waits behind dead jobs has a number by queue, which ends with it.
func TestWrite_BehindDead(t *testing.T) {
	q, _ := open(t)
	for _, queue := range []string{"mail", "post/1", "post/2", "alone"} {
		for _, do := range []string{"die", "", ""} {
			if _, err := q.Enqueue(t.Context(), task{do}, &errand.JobOptions{Queue: queue, Group: "g"}); err != nil {
				t.Fatal(err)
			}
			if queue == "alone" {
				break
			}
		}
		work(t, q, 1, queue)
	}
	o := metrics.Options{Merge: []string{"post/*"}}
	is := func(want map[string]float64) {
		t.Helper()
		got := values(t, write(t, q, &o))
		for series := range got {
			if _, ok := want[series]; !ok && strings.HasPrefix(series, "errand_jobs_behind_dead") {
				t.Errorf("there is %s %v", series, got[series])
			}
		}
		for series, want := range want {
			if v, ok := got[series]; !ok || v != want {
				t.Errorf("%s is %v (there: %t), want %v", series, v, ok, want)
			}
		}
	}
	is(map[string]float64{`errand_jobs_behind_dead{queue="mail"}`: 2, `errand_jobs_behind_dead{queue="post/*"}`: 4, `errand_health{code="dead_head"}`: 3})
	o.Lanes = 1
	is(map[string]float64{`errand_jobs_behind_dead{queue="mail"}`: 2, `errand_jobs_behind_dead{queue="other"}`: 4, `errand_health{code="dead_head"}`: 3})
	for _, queue := range []string{"mail", "post/1", "post/2"} {
		if _, err := q.SkipHead(t.Context(), queue, "g"); err != nil {
			t.Fatal(err)
		}
	}
	is(map[string]float64{`errand_health{code="dead_head"}`: 0})
}

// That jobs wait behind dead ones in more queues than have a number is seen too.
func TestWrite_BehindDead_manyQueues(t *testing.T) {
	q, _ := open(t)
	const queues = 102
	var all []string
	for i := range queues {
		all = append(all, fmt.Sprintf("q%03d", i))
		for _, do := range []string{"die", "", ""} {
			if _, err := q.Enqueue(t.Context(), task{do}, &errand.JobOptions{Queue: all[i], Group: "g"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	work(t, q, queues, all...)
	got := values(t, write(t, q, &metrics.Options{}))
	for i, want := range map[string]float64{"q000": 2, "q099": 2, "q100": 0, "q101": 0, "other": 2} {
		if v, ok := got[`errand_jobs_behind_dead{queue="`+i+`"}`]; v != want || ok != (want > 0) {
			t.Errorf("of queue %s %v wait behind dead ones (there: %t), want %v", i, v, ok, want)
		}
	}
}

// Each family has the numbers of Stats, Totals and the others.
func TestWrite(t *testing.T) {
	q, path := open(t)
	for _, do := range []string{"", "", "die", "cancel", "retry"} {
		enqueue(t, q, do, "mail")
	}
	work(t, q, 5, "mail")
	enqueue(t, q, "", "away")
	if err := q.Pause(t.Context(), "away"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "", "alone")
	got := values(t, write(t, q, &metrics.Options{File: path}))
	for series, want := range map[string]float64{
		`errand_up`: 1,
		`errand_jobs{queue="mail",kind="task",state="done"}`:                    2,
		`errand_jobs{queue="mail",kind="task",state="dead"}`:                    1,
		`errand_jobs{queue="mail",kind="task",state="cancelled"}`:               1,
		`errand_jobs{queue="mail",kind="task",state="scheduled"}`:               1,
		`errand_jobs{queue="mail",kind="task",state="running"}`:                 0,
		`errand_jobs{queue="away",kind="task",state="ready"}`:                   1,
		`errand_jobs_enqueued_total{queue="mail",kind="task"}`:                  5,
		`errand_jobs_ended_total{queue="mail",kind="task",outcome="done"}`:      2,
		`errand_jobs_ended_total{queue="mail",kind="task",outcome="cancelled"}`: 1,
		`errand_jobs_ended_total{queue="mail",kind="task",outcome="dead"}`:      1,
		`errand_jobs_ended_total{queue="mail",kind="task",outcome="expired"}`:   0,
		`errand_evicted_total{queue="mail",kind="task"}`:                        0,
		`errand_dead_evicted_total{queue="mail",kind="task"}`:                   0,
		`errand_attempts_total{queue="mail",kind="task",verdict="done"}`:        2,
		`errand_attempts_total{queue="mail",kind="task",verdict="dead"}`:        1,
		`errand_attempts_total{queue="mail",kind="task",verdict="cancelled"}`:   1,
		`errand_attempts_total{queue="mail",kind="task",verdict="retried"}`:     1,
		`errand_job_run_seconds_count{queue="mail",kind="task"}`:                5,
		`errand_job_run_seconds_bucket{queue="mail",kind="task",le="+Inf"}`:     5,
		`errand_job_wait_seconds_bucket{queue="mail",kind="task",le="7200"}`:    5,
		`errand_holds{queue="away",kind="task",reason="paused"}`:                1,
		`errand_unserved_lanes{queue="away",kind="task"}`:                       1,
		`errand_unserved_lanes{queue="alone",kind="task"}`:                      1,
		`errand_unserved_lanes{queue="mail",kind="task"}`:                       0,
		`errand_workers`:              0,
		`errand_disk_full`:            0,
		`errand_health{code="brake"}`: 0,
		`errand_health{code="write"}`: 0,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", series, v, ok, want)
		}
	}
	now, held, free := got["errand_clock_seconds"], got[`errand_oldest_due_timestamp_seconds{queue="away",kind="task",held="true"}`],
		got[`errand_oldest_due_timestamp_seconds{queue="alone",kind="task",held="false"}`]
	if held == 0 || free < held || now < free {
		t.Errorf("the clock is %f, the oldest due are %f and %f", now, held, free)
	}
	for _, name := range []string{"errand_file_bytes", "errand_log_bytes"} {
		if got[name] < 4096 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	for series := range got {
		if strings.Contains(series, `queue="mail",kind="task",held`) {
			t.Errorf("no job of mail is due, but there is %s", series)
		}
	}
}

// A sum of the series of 1,000 queues is right, and there are 201 of them.
func TestWrite_other(t *testing.T) {
	q, _ := open(t)
	many(t, q, 1000)
	for _, c := range []struct {
		o      *metrics.Options
		series int
		sums   map[string]float64
	}{
		{nil, 201, map[string]float64{`queue="other",kind="other"`: 800, `queue="q-0000",kind="task"`: 1, `queue="q-0199",kind="task"`: 1}},
		{&metrics.Options{Lanes: 2}, 3, map[string]float64{`queue="other",kind="other"`: 998, `queue="q-0001",kind="task"`: 1}},
		{&metrics.Options{Merge: []string{"q-*", "q-01*"}}, 2, map[string]float64{`queue="q-*",kind="task"`: 900, `queue="q-01*",kind="task"`: 100}},
		{&metrics.Options{Lanes: 100, Merge: []string{"q-00*"}}, 101, map[string]float64{`queue="q-00*",kind="task"`: 100, `queue="q-0198",kind="task"`: 1, `queue="other",kind="other"`: 801}},
	} {
		got := values(t, write(t, q, c.o))
		n := 0
		for series := range got {
			if strings.HasPrefix(series, "errand_jobs_enqueued_total") {
				n++
			}
		}
		if n != c.series {
			t.Errorf("%+v: %d series, want %d", c.o, n, c.series)
		}
		for labels, want := range c.sums {
			for _, name := range []string{"errand_jobs_enqueued_total{" + labels + "}", "errand_jobs{" + labels + `,state="ready"}`, "errand_unserved_lanes{" + labels + "}"} {
				if got[name] != want {
					t.Errorf("%+v: %s is %v, want %v", c.o, name, got[name], want)
				}
			}
		}
	}
}

// many enqueues a job in each of n queues, in the order of their names.
func many(t testing.TB, q *errand.Queue, n int) {
	t.Helper()
	var jobs []errand.NewJob
	for i := range n {
		jobs = append(jobs, errand.NewJob{Args: task{}, Options: &errand.JobOptions{Queue: fmt.Sprintf("q-%04d", i)}})
	}
	if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
}

// No counter of a handler falls, whatever becomes of the jobs: with lanes that come, are
// summed, merged or emptied, also into lanes that are not known yet.
func TestHandler_monotone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storagetest.NewMemory().Open()
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet, Retention: -1})
		if err != nil {
			t.Fatal(err)
		}
		h := metrics.Handler(q, &metrics.Options{Lanes: 4, Merge: []string{"m/*"}})
		last := map[string]float64{}
		look := func(what string) {
			t.Helper()
			time.Sleep(time.Second) // of the bubble: for a new look
			got := values(t, scrape(t, func(w *httptest.ResponseRecorder) { h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) }))
			for series, was := range last {
				name, _, _ := strings.Cut(series, "{")
				counter := strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_count") || strings.HasSuffix(name, "_bucket")
				if now, ok := got[series]; counter && (!ok || now < was) {
					t.Errorf("%s: %s has fallen from %v to %v (there: %t)", what, series, was, now, ok)
				}
			}
			last = got
		}
		for i := range 8 {
			for _, prefix := range []string{"", "m/"} {
				queue := fmt.Sprintf("%sq%d", prefix, i)
				id, dead := enqueue(t, q, "", queue), enqueue(t, q, "die", queue)
				look("enqueued")
				if i%2 == 0 {
					if _, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Queue: fmt.Sprintf("z%d", i)}); err != nil {
						t.Fatal(err)
					}
					look("changed")
				}
				work(t, q, 2, queue, "z*")
				look("ended")
				if i%3 == 0 {
					if _, err := q.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{dead}}, nil); err != nil {
						t.Fatal(err)
					}
					look("redriven")
					work(t, q, 1, queue)
					look("dead again")
				}
				if _, err := q.DeadLetters().Purge(t.Context(), errand.JobFilter{IDs: []errand.ID{dead}}); err != nil {
					t.Fatal(err)
				}
				look("purged")
			}
		}
		if last[`errand_jobs_enqueued_total{queue="other",kind="other"}`] == 0 || last[`errand_jobs_enqueued_total{queue="m/*",kind="task"}`] != 16 {
			t.Errorf("nothing was summed or merged: %v", last)
		}
	})
}

// Not the name decides which lanes keep their series, but the order in which the file met them.
func TestHandler_order(t *testing.T) {
	q, _ := open(t)
	for _, queue := range []string{"z", "y", "a"} {
		enqueue(t, q, "", queue)
	}
	got := values(t, write(t, q, &metrics.Options{Lanes: 2}))
	if got[`errand_jobs_enqueued_total{queue="z",kind="task"}`] != 1 || got[`errand_jobs_enqueued_total{queue="other",kind="other"}`] != 1 {
		t.Errorf("%v", got)
	}
}

// counting is a store that counts the looks at its numbers, and may not answer, or fail.
type counting struct {
	storage.Store
	looks atomic.Int64
	block atomic.Bool
	free  chan struct{}
	err   error
}

func (c *counting) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	c.looks.Add(1)
	if c.block.Load() {
		<-c.free // whatever becomes of ctx
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.Store.Stats(ctx)
}

func counted(t *testing.T) (*counting, *errand.Queue) {
	t.Helper()
	c := &counting{Store: storagetest.NewMemory().Open(), free: make(chan struct{})}
	q, err := errand.New(t.Context(), c, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return c, q
}

const downText = "# HELP errand_up 1 if the queue could be read within 2 s. If 0, all else is left out.\n# TYPE errand_up gauge\nerrand_up 0\n"

// Ten scrapers a second cost one look a second.
func TestHandler_shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		h := metrics.Handler(q, nil)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				for range 10 {
					text := scrape(t, func(w *httptest.ResponseRecorder) { h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) })
					if !strings.Contains(text, "\nerrand_up 1\n") {
						t.Errorf("served %s", text)
					}
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		if n := store.looks.Load(); n < 10 || n > 11 { // in 9.5 s
			t.Errorf("the store was asked %d times, want 10 or 11", n)
		}
	})
}

// If the store does not answer, the handler serves errand_up 0 after 2 s, and one look waits.
func TestHandler_silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		store.block.Store(true)
		h := metrics.Handler(q, nil)
		for range 5 {
			began := time.Now()
			text := scrape(t, func(w *httptest.ResponseRecorder) { h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) })
			if took := time.Since(began); !strings.HasPrefix(text, downText+"# the queue has not answered") || took != 2*time.Second {
				t.Errorf("after %v: %s", took, text)
			}
		}
		if n := store.looks.Load(); n != 1 {
			t.Errorf("%d calls wait for the store, want 1", n)
		}
		store.block.Store(false)
		close(store.free)
		synctest.Wait()
		time.Sleep(time.Second)
		text := scrape(t, func(w *httptest.ResponseRecorder) { h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil)) })
		if !strings.Contains(text, "\nerrand_up 1\n") {
			t.Errorf("served once the store answers: %s", text)
		}
	})
}

// Write writes errand_up 0 if the queue cannot be read, and returns the error.
func TestWrite_fails(t *testing.T) {
	closed, _ := open(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	silent, _ := open(t)
	broken := errors.New("broken")
	store, failing := counted(t)
	store.err = broken
	for what, c := range map[string]struct {
		q    *errand.Queue
		ctx  context.Context
		want error
	}{
		"no queue":  {nil, t.Context(), nil},
		"closed":    {closed, t.Context(), errand.ErrClosed},
		"fails":     {failing, t.Context(), broken},
		"ctx ended": {silent, ended, context.Canceled},
	} {
		var b strings.Builder
		err := metrics.Write(c.ctx, &b, c.q, nil)
		if !strings.HasPrefix(b.String(), downText) && what != "ctx ended" || err == nil && what != "ctx ended" || err != nil && c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: wrote %s, returned %v", what, &b, err)
		}
	}
}

// While somebody keeps the write lock, the numbers are told, and that nothing can be written.
func TestWrite_busy(t *testing.T) {
	q, path := open(t)
	enqueue(t, q, "", "mail")
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	got := values(t, write(t, q, nil))
	if got["errand_up"] != 1 || got[`errand_jobs{queue="mail",kind="task",state="ready"}`] != 1 || got[`errand_health{code="write"}`] != 1 {
		t.Errorf("wrote %v", got)
	}
	for _, unknown := range []string{"errand_disk_full", `errand_health{code="full"}`, `errand_health{code="cap"}`} {
		if v, ok := got[unknown]; ok {
			t.Errorf("%s is %v, and nobody has looked", unknown, v)
		}
	}
}

// A file that is damaged cannot be read.
func TestWrite_damaged(t *testing.T) {
	q, path := open(t)
	many(t, q, 300)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("damage! ", int(info.Size()-8192)/8)), 8192); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := metrics.Write(t.Context(), &b, q, nil); !strings.HasPrefix(b.String(), downText+"# errand: database is damaged") || !errors.Is(err, errand.ErrCorrupt) {
		t.Errorf("wrote %s, returned %v", &b, err)
	}
}

// A file that was removed under an open queue cannot be read, or is told as damage: what is
// written now is lost.
func TestWrite_removed(t *testing.T) {
	q, path := open(t)
	enqueue(t, q, "", "mail")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	for q.Health(t.Context(), nil).Ready { // until the store checks its path, once a second
	}
	var b strings.Builder
	err := metrics.Write(t.Context(), &b, q, &metrics.Options{File: path})
	if text := b.String(); !strings.HasPrefix(text, downText+"# errand: ") && (err != nil || !strings.Contains(text, "\nerrand_health{code=\"damage\"} 1\n") || strings.Contains(text, "\nerrand_file_bytes ")) {
		t.Errorf("wrote %s, returned %v", text, err)
	}
}

// Holds are told with when the oldest began.
func TestWrite_held(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		began := time.Now()
		for i, queue := range []string{"w/1", "w/2"} {
			enqueue(t, q, "", queue)
			if err := q.Hold(t.Context(), errand.Lane{Queue: queue}, &errand.HoldOptions{Reason: "moving"}); err != nil {
				t.Fatal(i, err)
			}
			time.Sleep(time.Hour)
		}
		got := values(t, write(t, q, &metrics.Options{Merge: []string{"w/*"}, Labels: map[string]string{"file": "a\"b"}}))
		for series, want := range map[string]float64{
			`errand_holds{queue="w/*",kind="task",reason="moving",file="a\"b"}`:                        2,
			`errand_held_since_timestamp_seconds{queue="w/*",kind="task",reason="moving",file="a\"b"}`: float64(began.Unix()),
			`errand_up{file="a\"b"}`: 1,
		} {
			if v, ok := got[series]; !ok || v != want {
				t.Errorf("%s is %v (%t), want %v", series, v, ok, want)
			}
		}
	})
}

// Options that are not as described are refused.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o     metrics.Options
		field string
	}{
		{metrics.Options{Lanes: -1}, "lanes"},
		{metrics.Options{Lanes: 10_001}, "lanes"},
		{metrics.Options{Merge: []string{"a/*", "b"}}, "merge[1]"},
		{metrics.Options{Merge: []string{"*"}}, "merge[0]"},
		{metrics.Options{Labels: map[string]string{"file": "a", "queue": "b"}}, "labels"},
		{metrics.Options{Labels: map[string]string{"le": "b"}}, "labels"},
		{metrics.Options{Labels: map[string]string{"file": "\xff"}}, "labels.file"},
		{metrics.Options{Labels: map[string]string{"a-b": "b"}}, "labels"},
		{metrics.Options{Labels: map[string]string{"__b": "b"}}, "labels"},
		{metrics.Options{Merge: []string{"a*b*"}}, "merge[0]"},
	} {
		var b strings.Builder
		err := metrics.Write(t.Context(), &b, nil, &c.o)
		var fault *errand.FieldError
		if !errors.As(err, &fault) || fault.Field != c.field || fault.Limit == "" || b.Len() > 0 {
			t.Errorf("%+v: %v, wrote %q", c.o, err, &b)
		}
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.As(err, &fault) {
					t.Errorf("%+v: the handler panicked with %v", c.o, err)
				}
			}()
			metrics.Handler(nil, &c.o)
		}()
	}
}

func ExampleHandler() {
	// mux.Handle("GET /metrics", metrics.Handler(q, nil))
	w := httptest.NewRecorder()
	metrics.Handler(nil, nil).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Print(w.Body)
	// Output:
	// # HELP errand_up 1 if the queue could be read within 2 s. If 0, all else is left out.
	// # TYPE errand_up gauge
	// errand_up 0
}
