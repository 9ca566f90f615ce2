package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
	"github.com/errandq/errand/webhook"
)

// hostile is what a producer may write in every field that takes any text. It sets pwned if any of
// it is taken for markup, and turns around the text after it if that is not kept apart.
const hostile = `</pre></textarea></title><script>window.pwned=1</script><img src="x" onerror="window.pwned=2">` +
	`"onfocus="window.pwned=3" 'javascript:window.pwned=4' {{.}} &amp; &lt;b&gt; ` + "\u202eright to left"

// reversed is short enough for what takes 255 bytes.
const reversed = `<script>window.pwned=5</script><i>"'&` + "\u202e"

var quiet = slog.New(slog.DiscardHandler)

// order is the args of all jobs of the tests.
type order struct {
	Do       string `json:"do"` // what the handler does
	Note     string `json:"note,omitempty"`
	Password string `json:"password,omitempty"`
}

func (order) Kind() string { return "order" }

func of(kind string, o order) errand.RawArgs {
	doc, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return errand.RawArgs{OfKind: kind, JSON: doc}
}

// shop is a queue in a file, with a worker.
type shop struct {
	*testing.T
	q      *errand.Queue
	hooks  *webhook.Webhooks
	topics *topic.Topics
	jobs   map[string]errand.ID // by what they are examples of
	full   bool                 // whether it was filled
}

// newShop returns an empty queue. Nothing runs.
func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, jobs: map[string]errand.ID{}}
	s.openQueue(filepath.Join(t.TempDir(), "shop.db"))
	return s
}

func (s *shop) openQueue(path string) {
	s.Helper()
	var err error
	if s.q, err = errand.Open(s.Context(), path, &errand.Options{Logger: quiet, MaxArgs: 4 << 20,
		// So many die of one cause in the tests that no more would be started.
		Queues: map[string]errand.QueueOptions{"mail": {MaxDeaths: -1}, "bills": {MaxDeaths: -1}}}); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.q.Close(); err != nil {
			s.Error(err)
		}
	})
	s.hooks, err = webhook.New(s.q, &webhook.Options{AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: quiet})
	s.check(err)
	s.Cleanup(s.hooks.Close)
	s.topics, err = topic.New(s.q, s.hooks, &topic.Options{Logger: quiet})
	s.check(err)
}

func (s *shop) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// add enqueues a job, and keeps its ID under a name if that is not empty.
func (s *shop) add(name string, args errand.Args, o *errand.JobOptions) errand.ID {
	s.Helper()
	e, err := s.q.Enqueue(s.Context(), args, o)
	if err != nil {
		s.Fatalf("%s: %v", name, err)
	}
	if name != "" {
		s.jobs[name] = e.ID
	}
	return e.ID
}

// until waits until a condition is true.
func (s *shop) until(what string, is func() bool) {
	s.Helper()
	s.untilOr(what, is, func() string { return "" })
}

// untilOr fails with what else says, if the condition does not come true.
func (s *shop) untilOr(what string, is func() bool, instead func() string) {
	s.Helper()
	end, again := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-end:
			s.Fatalf("waited %v for %s; %s", patience, what, instead())
		}
	}
}

// state waits until a job is in a state.
func (s *shop) state(name string, want errand.State) {
	s.Helper()
	s.untilOr(name+" to be "+string(want), func() bool {
		info, err := s.q.Job(s.Context(), s.jobs[name])
		return err == nil && info.State == want
	}, func() string {
		why, err := s.q.Why(s.Context(), s.jobs[name])
		return fmt.Sprint(why, err)
	})
}

// serving are the queues and kinds that the worker of a shop works for.
var (
	serving = []string{"default", "mail", "reports", "payments", "bills", "errand.bulk", webhook.Queues, topic.Queues}
	kinds   = []string{"order", "letter", "report", "payment", "call"}
)

// work runs a worker with some places until the test ends.
func (s *shop) work(places int) {
	s.Helper()
	w := errand.NewWorker(s.q, &errand.WorkerOptions{Queues: serving, Concurrency: places, Logger: quiet, Grace: -1})
	s.hooks.Handle(w)
	s.topics.Handle(w)
	for _, kind := range kinds {
		errand.HandleRaw(w, kind, handle, errand.HandlerOptions{Policy: &policy.Policy{Retries: 3, MinDelay: time.Hour, MaxDelay: 2 * time.Hour}})
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
}

func handle(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
	var o order
	if err := json.Unmarshal(job.Args.JSON, &o); err != nil {
		return errand.Permanent(err)
	}
	switch o.Do {
	case "die":
		return errand.Permanent(errors.New(o.Note))
	case "die once":
		if job.Attempt == 1 {
			return errand.Permanent(errors.New(o.Note))
		}
		return nil
	case "die of bytes":
		return errand.Permanent(errors.New("not UTF-8: \xff\xfe <b>\x00\x1b[31m"))
	case "panic":
		panic(o.Note)
	case "fail":
		return errors.New(o.Note)
	case "away":
		return errand.HoldLane(time.Hour, errors.New(o.Note))
	case "run":
		job.Progress(40, 100, o.Note)
		if err := job.Checkpoint(ctx, map[string]string{"page": o.Note, "secret": "hunter2"}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	case "follow":
		if err := job.Then(of("order", order{Do: "done", Note: "follows"}), nil); err != nil {
			return err
		}
	}
	if len(o.Note) > 10_000 {
		return nil
	}
	return job.SetResult(map[string]string{"note": o.Note, "token": "hunter2"})
}

// fill fills a queue with jobs in all states, with dead letters of several causes, holds, groups,
// schedules, bulk jobs and endpoints, and with hostile text wherever a producer may write. A worker
// runs until the test ends.
func (s *shop) fill() {
	s.Helper()
	s.full = true
	ctx := s.Context()
	headers := map[string]string{"authorization": "Bearer hunter2", "note": hostile}
	s.work(12)

	s.add("expired", of("nobody", order{Do: "done", Note: "too late"}), &errand.JobOptions{Queue: "attic", StartWithin: time.Second})
	s.add("done", of("order", order{Do: "done", Note: hostile, Password: "hunter2"}), &errand.JobOptions{Headers: headers, Tags: []string{"customer:17", "red"}, Priority: 5})
	s.add("follow", of("order", order{Do: "follow", Note: "starts another"}), nil)
	s.add("dead", of("letter", order{Do: "die", Note: hostile, Password: "hunter2"}), &errand.JobOptions{
		Queue: "mail", Headers: headers, Tags: []string{"customer:17"}, Group: reversed, Unique: &errand.Unique{Key: reversed, Forever: true}})
	s.add("blocked", of("letter", order{Do: "done", Note: "behind it"}), &errand.JobOptions{Queue: "mail", Group: reversed})
	s.add("panicked", of("report", order{Do: "panic", Note: hostile}), nil)
	s.add("bytes", of("report", order{Do: "die of bytes"}), nil)
	for i := range 5 {
		s.add("", of("letter", order{Do: "die", Note: fmt.Sprintf("no such address: customer%d@shop.example", i)}), &errand.JobOptions{Queue: "mail"})
	}
	for range 3 {
		s.add("", of("payment", order{Do: "die", Note: "the card was refused"}), &errand.JobOptions{Queue: "payments"})
	}
	s.add("failed", of("order", order{Do: "fail", Note: "the disk of the other side is full: " + hostile}), nil)
	s.add("large", of("order", order{Do: "done", Note: strings.Repeat("0123456789abcdef", 1<<16)}), nil)
	s.add("running", of("report", order{Do: "run", Note: reversed}), &errand.JobOptions{Queue: "reports"})
	s.add("away", of("call", order{Do: "away", Note: "the other side is away: " + reversed}), &errand.JobOptions{Queue: "payments"})
	s.add("scheduled", of("order", order{Do: "done", Note: "later"}), &errand.JobOptions{Delay: time.Hour, StartWithin: time.Hour, FinishWithin: 2 * time.Hour})
	s.add("cancelled", of("order", order{Do: "done", Note: "not wanted"}), &errand.JobOptions{Delay: time.Hour})
	_, err := s.q.Cancel(ctx, s.jobs["cancelled"])
	s.check(err)

	s.check(s.q.Hold(ctx, errand.Lane{Queue: "mail", Kind: "order"}, &errand.HoldOptions{Reason: "audit", By: reversed, For: time.Hour}))
	s.add("held", of("order", order{Do: "done", Note: "held"}), &errand.JobOptions{Queue: "mail"})
	s.until("progress", func() bool { // a job that has begun goes on in a queue that is paused
		info, err := s.q.Job(ctx, s.jobs["running"])
		return err == nil && info.Progress != nil
	})
	s.check(s.q.Pause(ctx, "reports"))
	s.add("unserved", of("nobody", order{Do: "done"}), &errand.JobOptions{Queue: "attic"})

	s.check(s.q.Schedule(ctx, errand.Schedule{Name: "night", Spec: "0 3 * * *", Zone: "Europe/Berlin", Args: of("order", order{Do: "done", Note: hostile, Password: "hunter2"})}))
	s.check(s.q.Schedule(ctx, errand.Schedule{Name: "each-hour", Spec: "@hourly", RunOnStart: true, Args: of("order", order{Do: "done"})}))
	s.check(s.q.Schedule(ctx, errand.Schedule{Name: "old", Spec: "@daily", Args: of("order", order{Do: "done"})}))
	s.check(s.q.Schedules().Pause(ctx, "old"))

	most, starts := 5000, 50
	s.check(s.q.Configure(ctx, errand.Lane{Queue: "mail"}, errand.Settings{MaxJobs: &most, Starts: &starts}))
	s.send()
	s.devices()

	for name, state := range map[string]errand.State{
		"done": errand.Done, "follow": errand.Done, "dead": errand.Dead, "blocked": errand.Blocked, "panicked": errand.Scheduled, "bytes": errand.Dead,
		"failed": errand.Scheduled, "large": errand.Done, "running": errand.Running, "scheduled": errand.Scheduled, "cancelled": errand.Cancelled,
		"expired": errand.Expired, "held": errand.Ready, "unserved": errand.Ready,
	} {
		s.state(name, state)
	}
	s.until("the hold of what is away", func() bool {
		holds, err := s.q.Holds(ctx)
		return err == nil && len(holds) >= 3
	})
	s.bulk("bulk done", errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Kind: "nothing"}, By: reversed})
	s.state("bulk done", errand.Done)
}

func (s *shop) bulk(name string, b errand.Bulk) {
	s.Helper()
	info, err := s.q.StartBulk(s.Context(), b)
	s.check(err)
	s.jobs[name] = info.ID
}

// send adds endpoints, of which one refuses what it is sent, and topics, and publishes to them.
func (s *shop) send() {
	s.Helper()
	ctx := s.Context()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/refuses") {
			http.Error(w, hostile, http.StatusBadRequest)
		}
	}))
	s.Cleanup(receiver.Close)
	for _, id := range []string{"ada", "refuses"} {
		secret, err := webhook.ParseSecret("whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==")
		s.check(err)
		_, _, err = s.hooks.Declare(ctx, webhook.Endpoint{ID: id, URL: receiver.URL + "/" + id + "?token=hunter2", Description: reversed, Headers: map[string]string{"X-Api-Key": "hunter2"}, Policy: &policy.Document{Retry: &policy.Policy{}}}, secret)
		s.check(err)
	}
	_, err := s.topics.Declare(ctx, topic.Topic{Name: "orders", Keep: time.Hour})
	s.check(err)
	for _, id := range []string{"ada", "refuses"} {
		_, err = s.topics.Subscribe(ctx, topic.Subscription{ID: id + "-orders", Topic: "orders", Endpoint: id, Filter: json.RawMessage(`{"total": [{"numeric": [">=", 100]}]}`), FilterScope: filter.Body})
		s.check(err)
	}
	_, err = s.topics.Subscribe(ctx, topic.Subscription{ID: "book-orders", Topic: "orders", Kind: "order"})
	s.check(err)
	body, err := json.Marshal(map[string]any{"total": 170, "note": hostile})
	s.check(err)
	for i := range 3 {
		p, err := s.topics.Publish(ctx, "orders", topic.Message{ID: fmt.Sprintf("m%d", i), Subject: reversed, Body: body, Tags: []string{"customer:17"}})
		s.check(err)
		if len(p.Jobs) != 3 {
			s.Fatalf("%d deliveries", len(p.Jobs))
		}
	}
	s.until("deliveries", func() bool {
		sent, refused := 0, 0
		counts, err := s.q.Counts(ctx)
		for _, c := range counts {
			switch {
			case c.Queue == webhook.QueueOf("ada") && c.State == errand.Done:
				sent += int(c.N)
			case c.Queue == webhook.QueueOf("refuses") && c.State == errand.Dead:
				refused += int(c.N)
			}
		}
		return err == nil && sent == 3 && refused == 3
	})
}

// devices adds two devices, of which one is held, and a queue whose jobs go to a server.
func (s *shop) devices() {
	s.Helper()
	ctx := s.Context()
	for _, name := range []string{"pump-17", "pump-18"} {
		s.check(relay.PutDevice(ctx, s.q, relay.Device{Name: name, Key: relay.NewSharedKey(), Rights: relay.Rights{SharedKeys: []string{reversed}}}))
	}
	topics, err := door.Open[errand.NewJob](s.q)
	s.check(err)
	_, err = topics.PutEntries(ctx, []storage.Entry{
		{Class: "relay-stream", Name: fmt.Sprintf("pump-17/%032x", 1), Doc: append([]byte{1, 1}, make([]byte, 41)...)},
		{Class: "relay-queue", Name: "up", Doc: []byte(`{"device":"shop-1","server":"jobs.example.org","streams":1}`)},
		{Class: "relay-out", Name: "up/00", Doc: fmt.Appendf(nil, `{"id":"%032x","n":5,"token":"%032x","held":true,"owner":"%032x"}`, 2, 3, 4)},
	})
	s.check(err)
}

// options returns those of a dashboard for a role.
func options(role dashboard.Role) *dashboard.Options {
	return &dashboard.Options{Logger: quiet, Name: "shop", Auth: func(*http.Request) (dashboard.Identity, error) {
		return dashboard.Identity{Name: "ann", Role: role}, nil
	}}
}

// serve serves a handler below a path, which is stripped or not, and returns its address.
func serve(t *testing.T, h http.Handler, path string, stripped bool, set ...func(*http.Server)) string {
	t.Helper()
	mux := http.NewServeMux()
	if stripped {
		h = http.StripPrefix(strings.TrimSuffix(path, "/"), h)
	}
	mux.Handle(path, h)
	server := httptest.NewUnstartedServer(mux)
	for _, f := range set {
		f(server.Config)
	}
	server.Start()
	t.Cleanup(func() { // also while a page listens to what changes
		_ = server.Config.Close()
		server.Close()
	})
	return server.URL + path
}

// dashboard serves the pages of the shop to a role, and returns the address of the front.
func (s *shop) dashboard(role dashboard.Role) string {
	return serve(s.T, dashboard.Handler(s.q, options(role)), "/ops/errand/", true)
}

// holds returns those there are.
func (s *shop) holds() []errand.HoldState {
	s.Helper()
	all, err := s.q.Holds(s.Context())
	s.check(err)
	return all
}
