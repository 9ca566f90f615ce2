package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func TestPrefix_refuses(t *testing.T) {
	for _, name := range []string{"web*hook", "**", "*/a", "a b*", "/*", "web/**", ""} {
		q, _ := memoryQueue(t, errand.Options{})
		err := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"ok/*", name}}).Run(t.Context())
		f, ok := errors.AsType[*errand.FieldError](err)
		if !ok || f.Field != "queues[1]" || f.Value != name {
			t.Errorf("a worker of %q: %v", name, err)
		}
		_, err = errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{name: {}}})
		if name != "" && !hasField(err, "queues") {
			t.Errorf("options of %q: %v", name, err)
		}
	}
	q, _ := memoryQueue(t, errand.Options{})
	err := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"a*", "a*"}}).Run(t.Context())
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "queues[1]" {
		t.Errorf("a prefix twice: %v", err)
	}
	_, err = errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"a*": {Settings: errand.Settings{MaxJobs: new(1)}}}})
	if !hasField(err, `queues["a*"].settings`) {
		t.Errorf("settings of a prefix: %v", err)
	}
	throttled := policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 5}}
	for what, o := range map[string]errand.Options{
		"of all":        {Policy: throttled},
		"of the prefix": {Queues: map[string]errand.QueueOptions{"a*": {Policy: throttled}}},
	} {
		q, _ := memoryQueue(t, o)
		err := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"b", "a/*"}}).Run(t.Context())
		if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "queues[1]" || f.Value != "a/*" {
			t.Errorf("a throttle %s: %v", what, err)
		}
	}
}

func quickRetries(n int) *policy.Policy { return &policy.Policy{Retries: n, NoDelayRetries: n} }

// hasField reports whether err has a fault of a field.
func hasField(err error, field string) bool {
	if f, ok := err.(*errand.FieldError); ok { //nolint:errorlint // of one of many
		return f.Field == field
	}
	all, _ := err.(interface{ Unwrap() []error })
	return all != nil && slices.ContainsFunc(all.Unwrap(), func(err error) bool { return hasField(err, field) })
}

// The options of a prefix are those of each of its queues, unless the queue or a longer
// prefix has its own; also where a worker is for single queues.
func TestPrefix_Options(t *testing.T) {
	for _, queues := range [][]string{{"web/*"}, {"*"}, {"web/a", "web/b", "web/eu/a", "web/vip"}} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{Policy: policy.Policy{}, Queues: map[string]errand.QueueOptions{
				"web/*":    {Policy: quickRetries(1), Budget: &policy.BudgetOptions{}},
				"web/eu/*": {Policy: quickRetries(2)},
				"web/vip":  {Policy: quickRetries(3)},
			}})
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: queues})
			errand.Handle(w, func(context.Context, *errand.Job[blob]) error { return errors.New("oops") })
			stop := run(t, w)
			ids := map[string]errand.ID{}
			for _, queue := range []string{"web/a", "web/b", "web/eu/a", "web/vip"} {
				ids[queue] = enqueue(t, q, blob{}, &errand.JobOptions{Queue: queue})
			}
			time.Sleep(24 * time.Hour)
			for queue, attempts := range map[string]int{"web/a": 2, "web/b": 2, "web/eu/a": 3, "web/vip": 4} {
				if info, err := q.Job(t.Context(), ids[queue]); err != nil || info.Attempt != attempts || info.State != errand.Dead {
					t.Errorf("worker of %v: the job of %s: %d attempts, %v", queues, queue, info.Attempt, err)
				}
			}
			budgets := map[string]bool{}
			for _, b := range q.Budgets() {
				budgets[b.Queue] = true
			}
			if !budgets["web/a"] || !budgets["web/b"] || budgets["web/vip"] {
				t.Errorf("budgets of %v", budgets)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A queue of a prefix is served, and one beside it is not.
func TestPrefix_Why(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"web/*": {Concurrency: 3, Policy: quickRetries(7)}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"web/*"}})
		errand.Handle(w, func(context.Context, *errand.Job[blob]) error { return nil })
		stop := run(t, w)
		later := &errand.JobOptions{Queue: "web/a", Delay: time.Hour}
		served := enqueue(t, q, blob{}, later)
		later.Queue = "web"
		other := enqueue(t, q, blob{}, later)
		time.Sleep(time.Minute)
		_, got := codes(t, q, served)
		_, others := codes(t, q, other)
		if got != string(errand.WhyNotDue) || others != string(errand.WhyNotDue)+" "+string(errand.WhyNoWorker) {
			t.Errorf("reasons %q and %q", got, others)
		}
		info, err := q.Job(t.Context(), served)
		if err != nil {
			t.Fatal(err)
		}
		if d, known, err := q.PolicyOf(t.Context(), info); err != nil || !known || d.Retry.Retries != 7 {
			t.Errorf("the policy is %v, %v", d, err)
		}
		workers, err := q.Workers(t.Context())
		if err != nil || len(workers) != 1 || fmt.Sprint(workers[0].Queues) != "[web/*]" || workers[0].Limits[0].Concurrency != 3 {
			t.Errorf("workers %+v, %v", workers, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A lane whose jobs have ended takes little memory of the process: what is counted of it, and its
// name and number.
func TestPrefix_Memory(t *testing.T) {
	const lanes, most = 10_000, 800 // bytes of a lane; it is about 650
	q := openQueue(t, &errand.Options{Logger: quiet, SQLite: errand.SQLiteOptions{Durability: errand.Relaxed},
		Queues: map[string]errand.QueueOptions{"web/*": {Concurrency: 4}}})
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"web/*"}})
	left, all := atomic.Int64{}, make(chan struct{})
	left.Store(lanes)
	errand.Handle(w, func(context.Context, *errand.Job[blob]) error {
		if left.Add(-1) == 0 {
			close(all)
		}
		return nil
	})
	before := held()
	for first := 0; first < lanes; first += 1000 {
		var jobs []errand.NewJob
		for i := range 1000 {
			jobs = append(jobs, errand.NewJob{Args: blob{}, Options: &errand.JobOptions{Queue: fmt.Sprintf("web/%d", first+i)}})
		}
		must(q.EnqueueMany(t.Context(), jobs))
	}
	run(t, w)
	<-all
	if each := (held() - before) / lanes; each > most {
		t.Errorf("%d bytes are kept for each lane, want at most %d", each, most)
	} else {
		t.Logf("%d bytes are kept for each lane", each)
	}
	runtime.KeepAlive(q)
}

// Strict options refuse each queue that they do not list, by whichever way it is named.
func TestStrict(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet, Strict: true, Queues: map[string]errand.QueueOptions{
		"default": {}, "mail": {}, "device/*": {}, "device/eu/x": {},
	}})
	ctx := t.Context()
	in := func(queue string) *errand.JobOptions { return &errand.JobOptions{Queue: queue} }
	schedule := func(queue string) errand.Schedule {
		return errand.Schedule{Name: "s", Spec: "@daily", Args: note{}, Options: in(queue)}
	}
	for _, queue := range []string{"", "mail", "device/", "device/eu", "device/eu/x"} {
		enqueue(t, q, note{}, in(queue))
		check(q.Schedule(ctx, schedule(queue)))
		if queue != "" {
			check(topicsOf(t, q).CheckQueue("queue", queue))
		}
	}
	check(errand.NewWorker(q, nil).Shutdown(ctx))
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
		errand.HandlerOptions{OnDead: &errand.OnDead{Queue: "device/eu"}})
	for _, queue := range []string{"mial", "mail/eu", "device", "Default"} {
		_, one := q.Enqueue(ctx, note{}, in(queue))
		_, many := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}, {Args: note{}, Options: in(queue)}})
		inTx := q.Tx(ctx, func(tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, note{}, in(queue))
			return err
		})
		_, change := q.Change(ctx, errand.JobFilter{Kind: "note"}, errand.JobChange{Queue: queue})
		_, redrive := q.DeadLetters().Redrive(ctx, errand.JobFilter{Kind: "note"}, &errand.RedriveOptions{Queue: queue})
		work := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{queue}}).Run(ctx)
		for field, err := range map[string]error{
			"queue": one, "jobs[1].queue": many, "queue ": inTx, "options.queue": q.Schedule(ctx, schedule(queue)), "of a topic": topicsOf(t, q).CheckQueue("of a topic", queue),
			"lane.queue": q.Configure(ctx, errand.Lane{Queue: queue}, errand.Settings{GroupLimit: new(2)}), "queue  ": change, "queue   ": redrive, "queues[0]": work,
		} {
			want := fmt.Sprintf("errand: %s %q: must be listed in Options.Queues, as Options.Strict is set: default, device/*, device/eu/x, mail",
				strings.TrimSpace(field), queue)
			if err == nil || err.Error() != want || !errors.Is(err, errand.ErrInvalid) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		}
	}
	for prefix, listed := range map[string]bool{"device/*": true, "device/eu*": true, "mail*": false, "dev*": false, "*": false} {
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{prefix}})
		stopped, stop := context.WithCancel(ctx)
		stop()
		if err := w.Run(stopped); listed != (err == nil) || !listed && !hasField(err, "queues[0]") {
			t.Errorf("a worker of %s: %v", prefix, err)
		}
	}
	_, err := errand.New(ctx, nil, &errand.Options{Strict: true})
	if !hasField(err, "strict") {
		t.Error(err)
	}
	_, err = errand.New(ctx, nil, &errand.Options{Strict: true, Queues: map[string]errand.QueueOptions{"a": {OnDead: &errand.OnDead{}}}})
	if !hasField(err, `queues["a"].on_dead.queue`) {
		t.Error(err)
	}
	// The queue of a worker that names none is default.
	q, _ = memoryQueue(t, errand.Options{Strict: true, Queues: map[string]errand.QueueOptions{"mail": {}}})
	if err := errand.NewWorker(q, nil).Run(ctx); !hasField(err, "queues") {
		t.Error(err)
	}
}

// A worker and its limits say which lanes they are about. An empty name stands for any.
func TestWorkerLimit_Includes(t *testing.T) {
	w := errand.WorkerInfo{Queues: []string{"mail", "web/*"}, Kinds: []string{"send"}}
	for _, c := range []struct {
		queue, kind   string
		serves, mail  bool // w, and a limit of the queue mail
		web, of, both bool // a limit of web/*, of a kind, and of it in web/*
	}{
		{"mail", "send", true, true, false, true, false},
		{"web/1", "send", true, false, true, true, true},
		{"web/1", "", true, false, true, true, true},
		{"", "send", true, true, true, true, true},
		{"", "other", false, true, true, false, false},
		{"web", "send", false, false, false, true, false},
		{"", "", true, true, true, true, true},
	} {
		got := []bool{w.Serves(c.queue, c.kind)}
		for _, n := range []errand.WorkerLimit{{Queue: "mail"}, {Queue: "web/*"}, {Kind: "send"}, {Queue: "web/*", Kind: "send"}} {
			got = append(got, n.Includes(c.queue, c.kind))
		}
		if want := []bool{c.serves, c.mail, c.web, c.of, c.both}; !slices.Equal(got, want) {
			t.Errorf("%q, %q: %v, want %v", c.queue, c.kind, got, want)
		}
	}
}
