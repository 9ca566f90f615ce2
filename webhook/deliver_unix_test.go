//go:build unix

package webhook_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// noop is a job with the args of a delivery.
type noop struct{ Message, Endpoint string }

func (noop) Kind() string { return "noop" }

// post is a job that makes a plain post.
type post struct{ Message, Endpoint string }

func (post) Kind() string { return "post" }

// course is what BenchmarkDelivery compares.
type course struct {
	*testing.B
	q      *errand.Queue
	hooks  *webhook.Webhooks
	url    string
	body   []byte
	client *http.Client
	did    chan struct{}
}

func newCourse(b *testing.B) *course {
	b.Helper()
	c := &course{B: b, body: bytes.Repeat([]byte("x"), 500), did: make(chan struct{}, 1000)}
	q, err := errand.Open(b.Context(), filepath.Join(b.TempDir(), "hooks.db"), &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = q.Close() })
	c.q = q
	c.hooks, err = webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.hooks.Close)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(s.Close)
	c.url = s.URL
	if _, _, err := c.hooks.Create(b.Context(), webhook.Endpoint{ID: "a", URL: s.URL}, webhook.Secret{}); err != nil {
		b.Fatal(err)
	}
	t := &http.Transport{MaxIdleConnsPerHost: 16}
	b.Cleanup(t.CloseIdleConnections)
	c.client = &http.Client{Transport: t}
	return c
}

func (c *course) post() error {
	r, err := c.client.Post(c.url, "application/json", bytes.NewReader(c.body))
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.Body.Close()
}

// posts makes n plain posts, 16 at a time.
func (c *course) posts(n int) {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range n / 16 {
				if err := c.post(); err != nil {
					c.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// drain works until n jobs are done.
func (c *course) drain(n int) {
	stop := c.work()
	for range n {
		<-c.did
	}
	stop()
}

// work starts a worker, and returns what ends it.
func (c *course) work() (stop func()) {
	w := errand.NewWorker(c.q, &errand.WorkerOptions{Queues: []string{"default", webhook.Queues}, Concurrency: 16, Middleware: []errand.Middleware{c.counts}})
	c.hooks.Handle(w)
	errand.Handle(w, func(context.Context, *errand.Job[noop]) error { return nil })
	errand.Handle(w, func(context.Context, *errand.Job[post]) error { return c.post() })
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	}
}

func (c *course) counts(next errand.HandlerFunc) errand.HandlerFunc {
	return func(ctx context.Context, j *errand.Job[errand.RawArgs]) error {
		err := next(ctx, j)
		if err != nil {
			c.Error(err)
		}
		c.did <- struct{}{}
		return err
	}
}

// cost is what something takes.
type cost struct{ wall, cpu time.Duration }

func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no errors with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c *cost) add(f func()) {
	begun, before := time.Now(), used()
	f()
	c.wall += time.Since(begun)
	c.cpu += used() - before
}

// A delivery to a receiver on this machine is compared with a post of the same body and a
// job without work, each by itself and as one job, in turns. A round is 320 of each, which
// wait when it begins.
func BenchmarkDelivery(b *testing.B) {
	c := newCourse(b)
	const n = 320
	args := noop{"msg_0123456789abcdefghijklmnop", "a"}
	var plain, job, both, delivery cost
	enqueue := func(args errand.Args) {
		for range n {
			if _, err := c.q.Enqueue(b.Context(), args, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	round := func() {
		plain.add(func() { c.posts(n) })
		enqueue(args)
		job.add(func() { c.drain(n) })
		enqueue(post(args))
		both.add(func() { c.drain(n) })
		for range n {
			if _, err := c.hooks.Send(b.Context(), webhook.Message{Body: c.body}, "a"); err != nil {
				b.Fatal(err)
			}
		}
		delivery.add(func() { c.drain(n) })
	}
	round() // the first makes connections
	plain, job, both, delivery = cost{}, cost{}, cost{}, cost{}
	for b.Loop() {
		round()
	}
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/float64(n*b.N), unit) }
	report(plain.cpu+job.cpu, "post+job-cpu-µs")
	report(both.cpu, "post-job-cpu-µs")
	report(delivery.cpu, "delivery-cpu-µs")
	report(plain.wall+job.wall, "post+job-µs")
	report(both.wall, "post-job-µs")
	report(delivery.wall, "delivery-µs")
	b.ReportMetric(float64(delivery.wall)/float64(both.wall), "wall-ratio")
	b.ReportMetric(float64(delivery.cpu)/float64(both.cpu), "cpu-ratio")
	b.ReportMetric(0, "ns/op")
}

// One message at a time, from Send until the receiver has it, is compared with a plain post
// and a job without work, from its enqueue until it has run. Each waits for the commit of
// the one before it, so that a round is 50 of each.
func BenchmarkDelivery_single(b *testing.B) {
	c := newCourse(b)
	stop := c.work()
	const n = 50
	args := noop{"msg_0123456789abcdefghijklmnop", "a"}
	var plain, job, delivery cost
	each := func(to *cost, f func() error) {
		to.add(func() {
			for range n {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	round := func() {
		each(&plain, c.post)
		each(&job, func() error {
			_, err := c.q.Enqueue(b.Context(), args, nil)
			if err == nil {
				<-c.did
			}
			return err
		})
		each(&delivery, func() error {
			_, err := c.hooks.Send(b.Context(), webhook.Message{Body: c.body}, "a")
			if err == nil {
				<-c.did
			}
			return err
		})
	}
	round() // the first makes connections
	plain, job, delivery = cost{}, cost{}, cost{}
	for b.Loop() {
		round()
	}
	stop()
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/float64(n*b.N), unit) }
	report(plain.wall, "post-µs")
	report(job.wall, "job-µs")
	report(delivery.wall, "delivery-µs")
	b.ReportMetric(float64(delivery.wall)/float64(plain.wall+job.wall), "wall-ratio")
	b.ReportMetric(float64(delivery.cpu)/float64(plain.cpu+job.cpu), "cpu-ratio")
	b.ReportMetric(0, "ns/op")
}
