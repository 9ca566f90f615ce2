//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

func init() { roles["hooks"], roles["topic"] = sellsAndDelivers, sellsAndDelivers }

// sale is the body of an event.
type sale struct {
	N     int    `json:"n"`
	Group string `json:"group"`
}

const customers = 5

const salesSchema = `CREATE TABLE sales (n INTEGER PRIMARY KEY, id TEXT NOT NULL)`

// hooksOf returns the webhooks of a queue, for receivers on this machine.
func hooksOf(q *errand.Queue) (*webhook.Webhooks, error) {
	return webhook.New(q, &webhook.Options{
		AllowHTTP: true, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Policy: policy.Policy{Retries: 1000, NoDelayRetries: 1, MinDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	})
}

// sends is how the event of a sale goes out.
type sends func(ctx context.Context, tx *sql.Tx, s *sale, body []byte) (id string, err error)

// sending registers the handlers of deliveries, and returns how events go out: by package
// topic, or else to all endpoints.
func sending(q *errand.Queue, hooks *webhook.Webhooks, w *errand.Worker, byTopic bool) (sends, error) {
	if byTopic {
		topics, err := topic.New(q, hooks, nil)
		if err != nil {
			return nil, err
		}
		topics.Handle(w)
		return func(ctx context.Context, tx *sql.Tx, s *sale, body []byte) (string, error) {
			sent, err := topics.PublishTx(ctx, tx, salesTopic, topic.Message{Body: body, Group: s.Group})
			return sent.ID, err
		}, nil
	}
	hooks.Handle(w)
	return func(ctx context.Context, tx *sql.Tx, s *sale, body []byte) (string, error) {
		sent, err := hooks.SendAllTx(ctx, tx, webhook.Message{Type: "sale", Body: body, Group: s.Group})
		return sent.ID, err
	}, nil
}

const salesTopic = "sales"

// sellsAndDelivers is a program that sells, and delivers the events of all sales. Of Jobs
// sales it makes as many as its part of Senders lives is, and in its last life all.
func sellsAndDelivers(p part, v *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(context.Background(), p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	hooks, err := hooksOf(q)
	if err != nil {
		return err
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}, LeaseDuration: time.Second, MaxCrashes: 1_000_000})
	send, err := sending(q, hooks, w, p.Role == "topic")
	if err != nil {
		return err
	}
	v.say("ready")
	sold := make(chan error, 1)
	go func() {
		for {
			n, id, err := sell(q, send, p.Jobs*min(p.First, p.Senders)/p.Senders)
			if n == 0 || err != nil {
				sold <- err
				return
			}
			v.say("sold %d %s", n, id)
		}
	}()
	err = errors.Join(w.Run(ctx), <-sold)
	hooks.Close()
	return errors.Join(err, q.Close())
}

// sell makes the next sale, if there are not as many as there may be: a row, and an event.
func sell(q *errand.Queue, send sends, most int) (n int, id string, err error) {
	ctx := context.Background()
	err = q.Tx(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(n), 0) + 1 FROM sales`).Scan(&n); err != nil || n > most {
			n = 0
			return err
		}
		s := sale{N: n, Group: fmt.Sprint("customer-", n%customers)}
		body, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if id, err = send(ctx, tx, &s, body); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sales (n, id) VALUES (?, ?)`, n, id)
		return err
	})
	return n, id, err
}

// receipts is the other side: some receivers, each at a path of its own. A tenth of the
// requests is refused.
type receipts struct {
	t *testing.T

	mu      sync.Mutex
	secrets map[string]webhook.Secret // by path
	ids     map[int]string            // of the messages, by sale
	taken   map[string]map[int]bool   // by path, sales that were taken
	last    map[string]int            // by path and group, the sale that was first received last
	got     map[string]map[int]bool   // by path, sales that were received
	n       int                       // taken, each counted once at each path
	twice   int                       // taken again
}

// ServeHTTP implements [http.Handler].
func (r *receipts) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := req.URL.Path
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := webhook.Verify(req, []webhook.Secret{r.secrets[path]}, 0)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return // the sender was killed in the midst of it
	}
	var s sale
	if err := errors.Join(err, json.Unmarshal(body, &s)); err != nil {
		r.t.Errorf("%s: %q: %v", path, body, err)
		return
	}
	id := req.Header.Get(webhook.HeaderID)
	if was, ok := r.ids[s.N]; ok && was != id {
		r.t.Errorf("%s: sale %d comes as message %s, and before as %s", path, s.N, id, was)
	}
	r.ids[s.N] = id
	if !r.got[path][s.N] {
		r.got[path][s.N] = true
		if last := r.last[path+s.Group]; s.N != last+customers && (last != 0 || s.N > customers) {
			r.t.Errorf("%s: of %s sale %d comes first after %d", path, s.Group, s.N, last)
		}
		r.last[path+s.Group] = s.N
	}
	if rand.N(10) == 0 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if r.taken[path][s.N] {
		r.twice++
		return
	}
	r.taken[path][s.N] = true
	r.n++
}

func (r *receipts) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// add makes an endpoint.
func (r *receipts) add(hooks *webhook.Webhooks, url, id string) {
	r.t.Helper()
	_, secret, err := hooks.Create(r.t.Context(), webhook.Endpoint{ID: id, URL: url + "/" + id}, webhook.Secret{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets["/"+id], r.taken["/"+id], r.got["/"+id] = secret, map[int]bool{}, map[int]bool{}
}

// subscribe makes the topic of sales, and subscribes endpoints to it.
func subscribe(t *testing.T, q *errand.Queue, hooks *webhook.Webhooks, endpoints int) {
	t.Helper()
	topics, err := topic.New(q, hooks, nil)
	if err == nil {
		_, err = topics.Create(t.Context(), topic.Topic{Name: salesTopic, Ordered: true})
	}
	for i := 0; i < endpoints && err == nil; i++ {
		_, err = topics.Subscribe(t.Context(), topic.Subscription{Topic: salesTopic, Endpoint: fmt.Sprint(i), Raw: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// check compares what was received with the rows of the sales.
func (r *receipts) check(sold map[int]string, rows map[int]string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, id := range sold {
		if rows[n] != id {
			r.t.Errorf("sale %d was acknowledged as %s, its row has %q", n, id, rows[n])
		}
	}
	for n, id := range r.ids {
		if rows[n] != id {
			r.t.Errorf("sale %d was received as %s, its row has %q", n, id, rows[n])
		}
	}
	for path, taken := range r.taken {
		for n := range rows {
			if !taken[n] {
				r.t.Errorf("%s: sale %d is lost", path, n)
			}
		}
	}
}

// A process that sells and delivers is killed. Each sale that has a row comes to each
// receiver, and no other does; one that comes twice has the ID of the message; and the first
// receipts of a customer's sales are in their order.
//
//errand:shows [hooks] | full relaxed | a process that sells 1,000 things and delivers their events to 100 endpoints is killed, twenty times; the rows of the sales are compared with what each receiver has received
func TestKill_Webhooks(t *testing.T) {
	inBoth(t, func(t *testing.T, relaxed bool) { killWebhooks(t, "hooks", relaxed) })
}

// The same of a process that publishes to an ordered topic.
//
//errand:shows [publish] | full relaxed | the same of a process that publishes the events to an ordered topic with 100 subscriptions
func TestKill_Publish(t *testing.T) {
	inBoth(t, func(t *testing.T, relaxed bool) { killWebhooks(t, "topic", relaxed) })
}

func killWebhooks(t *testing.T, role string, relaxed bool) {
	t.Parallel()
	sales, endpoints, kills := 30, 12, 5
	if full() {
		sales, endpoints, kills = 1000, 100, 20
	}
	random := dice(t)
	r := &receipts{
		t: t, secrets: map[string]webhook.Secret{}, ids: map[int]string{}, last: map[string]int{},
		taken: map[string]map[int]bool{}, got: map[string]map[int]bool{},
	}
	server := httptest.NewUnstartedServer(r)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	crew := newCrew(t, 0, role, relaxed, func(q *errand.Queue) {
		hooks, err := hooksOf(q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range endpoints {
			r.add(hooks, server.URL, fmt.Sprint(i))
		}
		if role == "topic" {
			subscribe(t, q, hooks, endpoints)
		}
		if err := q.Tx(t.Context(), func(tx *sql.Tx) error { _, err := tx.Exec(salesSchema); return err }); err != nil {
			t.Fatal(err)
		}
	})
	crew.role.Jobs, crew.role.Senders = sales, kills+1
	crew.all, crew.names = make([]*child, 1), make([]int, 1)
	crew.begin(0)

	acknowledged := map[int]string{}
	heard := func(line string) {
		var n int
		var id string
		if _, err := fmt.Sscanf(line, "sold %d %s", &n, &id); err == nil {
			acknowledged[n] = id
		}
	}
	begun := time.Now()
	for i := range kills {
		one := crew.all[0]
		one.hears("ready")
		each := sales / (kills + 1)
		if i%2 == 0 { // while it sells
			for range random.IntN(each) {
				heard("sold " + one.hears("sold"))
			}
			<-time.After(between(random, 0, 5*time.Millisecond))
		} else {
			enough := i*each*endpoints + random.IntN(each*endpoints)
			await(t, 2*time.Minute, "events are received", func() bool { return r.count() >= enough || t.Failed() })
		}
		crew.kill(0)
		for line := range one.said {
			heard(line)
		}
	}
	last := crew.all[0]
	await(t, 5*time.Minute, "each event is received", func() bool { return r.count() == sales*endpoints || t.Failed() })
	rows := salesOf(t, crew.path)
	crew.finish(func() {})
	for line := range last.said {
		heard(line)
	}
	r.check(acknowledged, rows)
	if len(rows) != sales || len(acknowledged) < sales-kills {
		t.Errorf("%d sales have rows, %d were acknowledged: want %d", len(rows), len(acknowledged), sales)
	}
	t.Logf("published %d received %d lost %d duplicates %d, %d kills in %v",
		sales*endpoints, r.count(), sales*endpoints-r.count(), r.twice, crew.kills(), time.Since(begun).Round(time.Millisecond))
}

// salesOf returns the rows of the sales.
func salesOf(t *testing.T, path string) map[int]string {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT n, id FROM sales`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[int]string{}
	for rows.Next() {
		var n int
		var id string
		if err := rows.Scan(&n, &id); err != nil {
			t.Fatal(err)
		}
		all[n] = id
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
