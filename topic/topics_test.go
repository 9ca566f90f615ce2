package topic_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// sent is a request that a receiver has got.
type sent struct {
	host   string
	header http.Header
	body   string
}

// transport is a network in memory: what it has got, and what it answers.
type transport struct {
	mu     sync.Mutex
	got    []sent
	answer func(r *sent, n int) int // the status; n counts from 1. If nil, 200
	seen   chan struct{}            // gets a value for each request, if not nil
}

func (n *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	s := sent{req.URL.Host, req.Header.Clone(), string(body)}
	n.mu.Lock()
	n.got = append(n.got, s)
	count, status := len(n.got), 200
	if n.answer != nil {
		status = n.answer(&s, count)
	}
	n.mu.Unlock()
	if n.seen != nil {
		n.seen <- struct{}{}
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("heard")), Request: req,
	}, nil
}

func (n *transport) all() []sent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]sent(nil), n.got...)
}

// rig is a queue with webhooks and topics.
type rig struct {
	t      *testing.T
	q      *errand.Queue
	hooks  *webhook.Webhooks
	topics *topic.Topics
	net    *transport
}

func newRig(t *testing.T, o *topic.Options) *rig {
	t.Helper()
	return rigAt(t, filepath.Join(t.TempDir(), "jobs.db"), o)
}

func rigAt(t *testing.T, path string, o *topic.Options) *rig {
	t.Helper()
	return rigWith(t, path, o, errand.Options{})
}

func rigWith(t *testing.T, path string, o *topic.Options, of errand.Options) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	of.SQLite.Durability, of.Logger = errand.Relaxed, quiet
	q, err := errand.Open(t.Context(), path, &of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	net := &transport{}
	hooks, err := webhook.New(q, &webhook.Options{Transport: net, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := topic.New(q, hooks, o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, q, hooks, topics, net}
}

func (r *rig) create(p topic.Topic) {
	r.t.Helper()
	if _, err := r.topics.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) endpoint(id string) {
	r.t.Helper()
	if _, _, err := r.hooks.Create(r.t.Context(), webhook.Endpoint{ID: id, URL: "https://" + id + ".example/hook"}, webhook.Secret{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) subscribe(s topic.Subscription) topic.Subscription {
	r.t.Helper()
	s, err := r.topics.Subscribe(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) publish(name string, m topic.Message) topic.Published {
	r.t.Helper()
	p, err := r.topics.Publish(r.t.Context(), name, m)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// start runs a worker for queues, until the function that it returns is called.
func (r *rig) start(register func(*errand.Worker), queues ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	w := errand.NewWorker(r.q, &errand.WorkerOptions{Queues: queues, Grace: -1})
	r.topics.Handle(w)
	if register != nil {
		register(w)
	}
	go func() { ended <- w.Run(ctx) }()
	return func() {
		r.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

// events returns a function that waits until so many events of a type have come.
func (r *rig) events(kind string, types ...errand.EventType) (wait func(n int)) {
	r.t.Helper()
	s, err := r.q.Subscribe(r.t.Context(), errand.EventFilter{Types: types, Kind: kind}, 10_000)
	if err != nil {
		r.t.Fatal(err)
	}
	return func(n int) {
		for range n {
			<-s.Events()
		}
	}
}

// jobs returns the jobs of a filter, of all pages.
func (r *rig) jobs(f errand.JobFilter) (all []errand.JobInfo) {
	r.t.Helper()
	for after := ""; ; {
		page, err := r.q.Jobs(r.t.Context(), f, &errand.ListOptions{Limit: 1000, After: after})
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

// fields returns the names of the fields that err refuses, with spaces between them.
func fields(t *testing.T, err error) string {
	t.Helper()
	var names []string
	var walk func(error)
	walk = func(err error) {
		if f, ok := err.(*errand.FieldError); ok { //nolint:errorlint // the errors of the tree, one by one
			names = append(names, f.Field)
			if s := f.Error(); len(s) > 400 || f.Limit == "" {
				t.Errorf("%d bytes for %s: %.400s", len(s), f.Field, s)
			}
			return
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("%v is not a FieldError", err)
		}
		for _, e := range joined.Unwrap() {
			walk(e)
		}
	}
	walk(err)
	slices.Sort(names)
	return strings.Join(names, " ")
}

var data = topic.Message{Body: []byte(`{"order": 17}`)}
