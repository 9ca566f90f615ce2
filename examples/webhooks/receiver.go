package main

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/errandq/errand/webhook"
)

// behaviour is how a receiver behaves.
type behaviour struct {
	name string
	act  func(r *receiver) (status int) // 0: as if all is well
}

var (
	// flaky refuses one of four requests.
	flaky = behaviour{"flaky", func(*receiver) int {
		if rand.IntN(4) == 0 {
			return http.StatusServiceUnavailable
		}
		return 0
	}}
	// slow takes its time.
	slow = behaviour{"slow", func(*receiver) int {
		time.Sleep(5 * time.Millisecond)
		return 0
	}}
	// gone answers nothing useful until it is back.
	gone = behaviour{"gone", func(r *receiver) int {
		if !r.back {
			return http.StatusBadGateway
		}
		return 0
	}}
)

// receiver is the other side: a service that somebody else runs.
type receiver struct {
	behaviour
	url    string
	secret webhook.Secret
	server *http.Server

	mu       sync.Mutex
	back     bool
	requests int
	refused  int
	seen     map[string]bool // IDs of messages
	sales    []Sale          // in the order in which they came, each once
	repeated int
}

func startReceiver(b behaviour) (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{behaviour: b, url: "http://" + l.Addr().String(), secret: webhook.NewSecret(), seen: map[string]bool{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive), ReadHeaderTimeout: time.Second}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// Close ends the receiver.
func (r *receiver) Close() error { return r.server.Close() }

// Back ends the absence of a receiver that is gone.
func (r *receiver) Back() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = true
}

// receive is what every receiver of webhooks does: verify, forget what it had already,
// answer soon.
func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := webhook.Verify(req, []webhook.Secret{r.secret}, 0)
	if err != nil {
		http.Error(w, "not verified", http.StatusBadRequest)
		return
	}
	var sale Sale
	if err := json.Unmarshal(body, &sale); err != nil {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	if status := r.take(req.Header.Get(webhook.HeaderID), sale); status != 0 {
		w.WriteHeader(status)
	}
}

func (r *receiver) take(id string, sale Sale) (status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if status := r.act(r); status != 0 {
		r.refused++
		return status
	}
	if r.seen[id] {
		r.repeated++
		return 0
	}
	r.seen[id] = true
	r.sales = append(r.sales, sale)
	return 0
}

// tally is what a receiver has received.
type tally struct {
	received, requests, refused, duplicates, disorder int
}

// tally counts the sales that were received, and those that came after a later one of the
// same customer.
func (r *receiver) tally(first, sales int) (t tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.requests, t.refused, t.duplicates = r.requests, r.refused, r.repeated
	last := map[string]int{}
	for _, s := range r.sales {
		if s.Number < first || s.Number >= first+sales { // of an earlier run
			continue
		}
		t.received++
		if s.Number < last[s.Customer] {
			t.disorder++
		}
		last[s.Customer] = max(last[s.Customer], s.Number)
	}
	return t
}
