package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How the receiver misbehaves, by the time since it was started. Refunds go by
// number: eight refusals lead a job into the last phase of its policy however
// slow the machine is.
const (
	offlineFor     = 1 * time.Second         // it refuses connections
	overloadedFor  = 2500 * time.Millisecond // it turns away three requests of four
	refundRefusals = 8                       // the service behind refunds is down
)

// A receiver is the partner that wants our events. It stands in for an HTTP
// service somewhere else, and misbehaves as those do, until it is corrected.
type receiver struct {
	ledger  *ledger
	server  *http.Server
	path    string
	started time.Time
	url     atomic.Value // string
	served  chan struct{}
	stop    context.CancelFunc

	corrected atomic.Bool
	requests  atomic.Int64

	mu      sync.Mutex
	refused map[string]int  // refusals by the ID of the refund
	hung    map[string]bool // by the ID of the event: once is enough
}

// startReceiver takes a port of 127.0.0.1 and starts listening on it a second
// later. Events that it accepts go to the ledger at path.
func startReceiver(path string) (*receiver, error) {
	ledger, err := openLedger(path)
	if err != nil {
		return nil, err
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, ledger.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	r := newReceiver(ledger)
	r.stop = stop
	// While offline the port is free for others. The path cannot be guessed, so
	// that nobody else acknowledges an event that was meant for us.
	r.path = "/" + rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+r.path, r.receive)
	r.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // clients that hang up are no news here
	}
	r.setAddr(port.Addr())
	err = port.Close()
	go r.serve(ctx, port.Addr().String())
	return r, err
}

func newReceiver(l *ledger) *receiver {
	return &receiver{
		ledger: l, started: time.Now(), served: make(chan struct{}),
		refused: make(map[string]int), hung: make(map[string]bool),
	}
}

func (r *receiver) setAddr(a net.Addr) { r.url.Store("http://" + a.String() + r.path) }

// URL is where events are to be posted.
func (r *receiver) URL() string { return r.url.Load().(string) }

func (r *receiver) serve(ctx context.Context, addr string) {
	defer close(r.served)
	select {
	case <-time.After(offlineFor):
	case <-ctx.Done():
		return
	}
	l, err := net.Listen("tcp", addr)
	if err != nil { // somebody has taken the port meanwhile
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			log.Print("receiver: ", err)
			return
		}
		r.setAddr(l.Addr())
	}
	_ = r.server.Serve(l) // always ends with an error: that it was closed
}

// Correct ends all misbehaviour: the partner is healthy, and sets malformed
// events aside for review instead of refusing them.
func (r *receiver) Correct() { r.corrected.Store(true) }

// Close cuts all connections. Start no request after it.
func (r *receiver) Close() error {
	r.stop()
	err := r.server.Close()
	<-r.served
	return errors.Join(err, r.ledger.Close())
}

// receive answers one request.
func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var e order
	if err := json.Unmarshal(body, &e); err != nil || e.ID == "" {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	if !r.corrected.Load() {
		if status, why := r.misbehave(req.Context(), e, time.Since(r.started)); status != 0 {
			if status == http.StatusTooManyRequests || why == overloaded {
				w.Header().Set("Retry-After", "1")
			}
			http.Error(w, why, status)
			return
		}
	}
	if req.Context().Err() != nil {
		return // the sender has given up: what is recorded now would come twice
	}
	if err := r.ledger.Append(e.ID); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

const overloaded = "overloaded"

// misbehave says with what status a receiver of this age turns e away, or 0.
func (r *receiver) misbehave(ctx context.Context, e order, age time.Duration) (status int, why string) {
	if e.Type == "order.refunded" && r.refuseRefund(e.ID) {
		return http.StatusServiceUnavailable, "refunds are down"
	}
	if age < overloadedFor {
		switch r.requests.Add(1) % 4 {
		case 0:
			return http.StatusServiceUnavailable, overloaded
		case 1:
			return http.StatusTooManyRequests, "too many requests"
		case 2:
			return http.StatusServiceUnavailable, "no healthy upstream"
		}
	}
	if r.hangOn(e) {
		<-ctx.Done() // no answer until the sender hangs up
		return http.StatusInternalServerError, "hung"
	}
	if err := e.check(); err != nil {
		return http.StatusBadRequest, err.Error()
	}
	return 0, ""
}

func (r *receiver) refuseRefund(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused[id] == refundRefusals {
		return false
	}
	r.refused[id]++
	return true
}

// hangOn reports whether the receiver is to hang on e: the first time it sees an
// unlucky one.
func (r *receiver) hangOn(e order) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.unlucky() || r.hung[e.ID] {
		return false
	}
	r.hung[e.ID] = true
	return true
}

// unlucky is true for about one event of a hundred.
func (e order) unlucky() bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, e.ID)
	return h.Sum32()%100 == 0
}
