package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// raw is a job of a kind that no type has.
func raw(kind, text string) errand.RawArgs {
	return errand.RawArgs{OfKind: kind, JSON: must(json.Marshal(text))}
}

func into(queue string) *errand.JobOptions { return &errand.JobOptions{Queue: queue} }

// relayed notes the calls of a HandleQueue: the queue of each, and the kinds and args of its jobs.
type relayed struct {
	mu    sync.Mutex
	calls []string
}

func (r *relayed) pass(_ context.Context, jobs []*errand.Job[errand.RawArgs]) error {
	text := jobs[0].Queue + ":"
	for _, job := range jobs {
		text += fmt.Sprintf(" %s%s", job.Args.OfKind, job.Args.JSON)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, text)
	return nil
}

func (r *relayed) want(t *testing.T, calls ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, calls) {
		t.Errorf("the calls are\n %s\nwant\n %s", strings.Join(r.calls, "\n "), strings.Join(calls, "\n "))
	}
	r.calls = nil
}

// A queue is passed on with all its kinds, also one that comes later and one that has a handler: the
// handler of a kind is called for the other queues of the worker.
//
//errand:shows all kinds of a queue | | one handler gets all of them, also those that come later, in the order of the queue; handlers of single kinds have the other queues
func TestHandleQueue(t *testing.T) {
	for _, most := range []int{1, 10} {
		t.Run(fmt.Sprint("at most ", most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, errand.Options{})
				w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "out", "relay/*", "relay/own"}, Concurrency: 1})
				var here []string
				errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
					here = append(here, job.Queue+" "+job.Args.Text)
					return nil
				})
				var out, relay relayed
				errand.HandleQueue(w, "out", out.pass, errand.BatchOptions{Max: most})
				errand.HandleQueue(w, "relay/*", relay.pass, errand.BatchOptions{Max: most})
				enqueue(t, q, note{Text: "kept"}, nil)
				enqueue(t, q, raw("a", "1"), into("out"))
				enqueue(t, q, note{Text: "out"}, into("out"))
				enqueue(t, q, raw("b", "3"), &errand.JobOptions{Queue: "out", Priority: 1})
				run(t, w)
				synctest.Wait()
				if most == 1 {
					out.want(t, `out: b"3"`, `out: a"1"`, `out: note{"Text":"out","N":0}`)
				} else {
					out.want(t, `out: b"3" a"1" note{"Text":"out","N":0}`)
				}
				enqueue(t, q, raw("new", "4"), into("out"))
				enqueue(t, q, raw("c", "5"), into("relay/x"))
				enqueue(t, q, note{Text: "own"}, into("relay/own"))
				id := enqueue(t, q, raw("c", "6"), into("relay/own"))
				synctest.Wait()
				out.want(t, `out: new"4"`)
				relay.want(t, `relay/x: c"5"`)
				if want := []string{"default kept", "relay/own own"}; !slices.Equal(here, want) {
					t.Errorf("handled here: %q, want %q", here, want)
				}
				if j := lookUp(t, q, id); j.State != errand.Ready {
					t.Errorf("a job of a kind without a handler, in a queue that is not passed on, is %s", j.State)
				}
			})
		})
	}
}

// The queue with options of its own within a prefix is of the prefix's handler too.
func TestHandleQueue_prefixWithOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"relay/x": {Policy: policy.Policy{}}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"relay/*"}})
		var relay relayed
		errand.HandleQueue(w, "relay/*", relay.pass, errand.BatchOptions{Max: 10})
		enqueue(t, q, raw("a", "1"), into("relay/x"))
		run(t, w)
		synctest.Wait()
		relay.want(t, `relay/x: a"1"`)
	})
}

// A group may have jobs of several kinds, which are passed on together and in order.
func TestHandleQueue_ByGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: policy.Policy{Retries: 3, MinDelayRetries: 3, MinDelay: time.Second, MaxDelay: time.Second, Jitter: policy.NoJitter}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
		var all relayed
		errand.HandleQueue(w, "default", func(ctx context.Context, jobs []*errand.Job[errand.RawArgs]) error {
			check(all.pass(ctx, jobs))
			for _, job := range jobs {
				if job.Kind == "b" && job.Attempt == 1 {
					return errand.BatchError{job.ID: errors.New("refused"), jobs[len(jobs)-1].ID: errors.New("behind it")}
				}
			}
			return nil
		}, errand.BatchOptions{Max: 10, ByGroup: true})
		for i, kind := range []string{"a", "b", "c", "a"} {
			enqueue(t, q, raw(kind, fmt.Sprint(i)), &errand.JobOptions{Group: "g"})
		}
		enqueue(t, q, raw("a", "alone"), nil)
		run(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		all.want(t, `default: a"0" b"1" c"2" a"3"`, `default: a"alone"`, `default: b"1" a"3"`)
	})
}

// The policy of the queue counts, and that of the job before it. The policy and the OnDead of a
// handler of the kind do not.
func TestHandleQueue_policy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Queues: map[string]errand.QueueOptions{"out": {Policy: policy.Retries(0)}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "out"}})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil }, errand.HandlerOptions{Policy: policy.Retries(5), OnDead: &errand.OnDead{}})
		var seen []string
		errand.HandleQueue(w, "out", func(ctx context.Context, jobs []*errand.Job[errand.RawArgs]) error {
			if d, ok := ctx.Deadline(); ok {
				seen = append(seen, time.Until(d).String())
			}
			return errors.New("refused")
		}, errand.BatchOptions{Max: 1}, errand.HandlerOptions{Timeout: time.Minute, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				seen = append(seen, "middleware "+job.Kind)
				return next(ctx, job)
			}
		}}})
		id := enqueue(t, q, note{}, into("out"))
		run(t, w)
		synctest.Wait()
		if j := lookUp(t, q, id); j.State != errand.Dead || j.Kind != "note" {
			t.Errorf("the job is %s, of kind %s, after %d attempts", j.State, j.Kind, j.Attempt)
		}
		for _, c := range must(q.Counts(t.Context())) {
			if c.Kind != "note" {
				t.Errorf("%d jobs of kind %s followed", c.N, c.Kind)
			}
		}
		if want := []string{"middleware note", "1m0s"}; !slices.Equal(seen, want) {
			t.Errorf("seen: %q, want %q", seen, want)
		}
		own := enqueue(t, q, note{}, &errand.JobOptions{Queue: "out", Policy: policy.Retries(1)})
		time.Sleep(time.Minute)
		synctest.Wait()
		if j := lookUp(t, q, own); j.State != errand.Dead || j.Attempt != 2 {
			t.Errorf("the job with a policy of its own is %s after %d attempts, want 2", j.State, j.Attempt)
		}
	})
}

// What is shown of a worker says which queues it takes all kinds of.
func TestHandleQueue_shown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "out"}})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
		errand.HandleQueue(w, "out", (&relayed{}).pass, errand.BatchOptions{Max: 10, Min: 5, Wait: time.Hour})
		run(t, w)
		id := enqueue(t, q, raw("new", "1"), into("out"))
		other := enqueue(t, q, raw("new", "1"), nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		all := must(q.Workers(t.Context()))
		if len(all) != 1 || !slices.Equal(all[0].AllKinds, []string{"out"}) || !slices.Equal(all[0].Kinds, []string{"note"}) {
			t.Fatalf("the workers are %+v", all)
		}
		for lane, want := range map[errand.Lane]bool{
			{Queue: "out", Kind: "new"}: true, {Queue: "out", Kind: "note"}: true, {Queue: "out"}: true, {Kind: "new"}: true,
			{Queue: "default", Kind: "new"}: false, {Queue: "default", Kind: "note"}: true, {Queue: "none", Kind: "new"}: false,
		} {
			if got := all[0].Serves(lane.Queue, lane.Kind); got != want {
				t.Errorf("serves %v: %t", lane, got)
			}
		}
		why := must(q.Why(t.Context(), id))
		if len(why.Reasons) == 0 || why.Reasons[0].Code != errand.WhyBatch || why.Reasons[0].Of != 5 {
			t.Errorf("why: %+v", why.Reasons)
		}
		if why := must(q.Why(t.Context(), other)); why.Reasons[0].Code != errand.WhyNoWorker {
			t.Errorf("why in the other queue: %+v", why.Reasons)
		}
	})
}

func TestHandleQueue_misuse(t *testing.T) {
	q := openQueue(t, &errand.Options{Queues: map[string]errand.QueueOptions{"gated": {Gate: new(errand.Switch)}}})
	fn := (&relayed{}).pass
	one := errand.BatchOptions{Max: 1}
	for what, c := range map[string]struct {
		queue string
		b     errand.BatchOptions
		o     []errand.HandlerOptions
		want  string
	}{
		"another queue": {"other", one, nil, "does not work for it"},
		"bad options":   {"default", errand.BatchOptions{}, nil, "max 0"},
		"a policy":      {"default", one, []errand.HandlerOptions{{Policy: policy.Policy{}}}, "policy must be set in QueueOptions"},
		"two gates":     {"gated", one, []errand.HandlerOptions{{Gate: new(errand.Switch)}}, "gate must not be set here and in QueueOptions"},
		"aliases":       {"default", one, []errand.HandlerOptions{{Aliases: []string{"a"}}}, "aliases must be set"},
		"a timeout":     {"default", one, []errand.HandlerOptions{{Timeout: -1}}, "must not be negative"},
		"two options":   {"default", one, make([]errand.HandlerOptions, 2), "at most one"},
		"a second":      {"taken", one, nil, "has a handler already"},
	} {
		t.Run(what, func(t *testing.T) {
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "taken", "gated"}})
			errand.HandleQueue(w, "taken", fn, one)
			defer func() {
				if r := recover(); !strings.Contains(fmt.Sprint(r), c.want) {
					t.Errorf("panics with %v, want %q", r, c.want)
				}
			}()
			errand.HandleQueue(w, c.queue, fn, c.b, c.o...)
		})
	}
	w := errand.NewWorker(q, nil)
	errand.HandleQueue(w, "default", fn, one)
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
	wantFaults(t, w.Run(t.Context()), fault{"handlers", `"note"`, "must have a queue of the worker without HandleQueue"})
}
