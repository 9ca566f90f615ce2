package errandtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

const (
	// mostEvents is how many events wait at most while the test looks at the queue.
	mostEvents = 100_000
	// defaultTimeout is how long nothing may happen. In a bubble, where waiting costs nothing,
	// handlers may sleep for long.
	defaultTimeout, bubbleTimeout = 30 * time.Second, 24 * time.Hour
	// mostNamed is how many jobs a message names.
	mostNamed = 10
)

// run is a worker that runs, and what is heard of it.
type run struct {
	queue   *errand.Queue
	events  *errand.Subscription
	worker  *errand.Worker
	end     context.CancelFunc
	ended   chan error // that of Run
	over    bool       // ended was received
	bubble  bool
	timeout time.Duration // without an event
}

// begin starts a worker. Events that f selects are heard from before that.
func begin(t testing.TB, q *errand.Queue, w *errand.Worker, f errand.EventFilter, timeout time.Duration) *run {
	t.Helper()
	if timeout < 0 {
		t.Fatal(&errand.FieldError{Field: "timeout", Value: timeout, Limit: "must not be negative"})
	}
	ctx, end := context.WithCancel(context.Background())
	r := &run{queue: q, worker: w, end: end, ended: make(chan error, 1), bubble: inBubble(), timeout: timeout}
	if r.timeout == 0 {
		r.timeout = defaultTimeout
		if r.bubble {
			r.timeout = bubbleTimeout
		}
	}
	var err error
	if r.events, err = q.Subscribe(context.Background(), f, mostEvents); err != nil {
		end()
		t.Fatalf("errandtest: %v", err)
	}
	go func() { r.ended <- w.Run(ctx) }()
	return r
}

// What next returns.
var (
	errTimeout = errors.New("nothing has happened for too long")
	errStopped = errors.New("the worker was stopped")
)

// next waits for a value of news, at most for pause if that is not zero: then ok is false. It
// returns errTimeout if none came for the timeout since a time, and an error if Run has
// returned.
func next[T any](r *run, news <-chan T, since time.Time, pause time.Duration) (v T, ok bool, err error) {
	left := time.Until(since.Add(r.timeout))
	if left <= 0 {
		return v, false, errTimeout
	}
	if pause == 0 || pause > left {
		pause = left
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case v, ok = <-news:
		if !ok {
			err = errand.ErrClosed
		}
		return v, ok, err
	case err := <-r.ended:
		r.over = true
		if err == nil {
			err = errStopped
		}
		return v, false, err
	case <-timer.C:
		return v, false, nil
	}
}

// await waits for a value, at most for the timeout.
func await[T any](r *run, values <-chan T) (v T, err error) {
	for since, ok := time.Now(), false; !ok && err == nil; {
		v, ok, err = next(r, values, since, 0)
	}
	return v, err
}

// stop stops the worker and returns the error of Run. Handlers that run have the grace of
// the worker, unless hurry is true.
func (r *run) stop(hurry bool) error {
	defer r.events.Close()
	r.end()
	if r.over {
		return nil
	}
	r.over = true
	if hurry {
		ctx, now := context.WithCancel(context.Background())
		now()
		_ = r.worker.Shutdown(ctx) // as Run
	}
	return <-r.ended
}

// whyText says why a job does not run.
func whyText(q *errand.Queue, j *errand.JobInfo) string {
	why, err := q.Why(context.Background(), j.ID)
	text := strings.ReplaceAll(why.String(), "\n", "; ")
	if err != nil {
		text = err.Error()
	}
	return fmt.Sprintf("%v of kind %s in queue %s is %s: %s", j.ID, j.Kind, j.Queue, j.State, text)
}

// waiting says of jobs that have not ended why they do not run.
func waiting(q *errand.Queue) string {
	page, err := q.Jobs(context.Background(), errand.JobFilter{
		States: []errand.State{errand.Running, errand.Ready, errand.Scheduled, errand.Blocked},
	}, &errand.ListOptions{Limit: mostNamed})
	if err != nil {
		return "\n\t" + err.Error()
	}
	var text strings.Builder
	for i := range page.Jobs {
		text.WriteString("\n\t" + whyText(q, &page.Jobs[i]))
	}
	if page.Next != "" {
		text.WriteString("\n\tand more")
	}
	return text.String()
}
