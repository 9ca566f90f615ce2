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

// How the receiver misbehaves, by the time since it was started.
const (
	offlineFor    = 1 * time.Second         // it refuses connections
	overloadedFor = 2500 * time.Millisecond // it turns away three requests of four
	refundsFor    = 4 * time.Second         // the service behind its refunds is down
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
	hung      sync.Map // event ID: the receiver has hung on it once
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
	// While offline the port is free for others. The path cannot be guessed, so
	// that nobody else acknowledges an event that was meant for us.
	ctx, stop := context.WithCancel(context.Background())
	r := &receiver{
		ledger: ledger, path: "/" + rand.Text(), started: time.Now(),
		served: make(chan struct{}), stop: stop,
	}
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
	if e.Type == "order.refunded" && age < refundsFor {
		return http.StatusServiceUnavailable, "refunds are down"
	}
	if _, again := r.hung.LoadOrStore(e.ID, true); !again && e.unlucky() {
		<-ctx.Done() // no answer until the sender hangs up
		return http.StatusInternalServerError, "hung"
	}
	if err := e.check(); err != nil {
		return http.StatusBadRequest, err.Error()
	}
	return 0, ""
}

// unlucky tells whether e is one of the hundredth part of events that the
// receiver hangs on the first time it sees them.
func (e order) unlucky() bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, e.ID)
	return h.Sum32()%100 == 0
}
