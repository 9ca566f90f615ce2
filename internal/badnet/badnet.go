// Package badnet is a bad network for tests of what speaks HTTP over it. It loses requests and
// answers, delays, doubles, reorders and truncates them, and answers by itself.
package badnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is something that a network does to a request.
type Fault int

// The faults. One request can meet several of them. Of the first six it meets one at most, the
// first of this list, and then no other.
const (
	// Portal: the network answers with status 200 and a page, as a captive portal does.
	Portal Fault = iota
	// Redirect: it answers with status 302, and the address of a portal.
	Redirect
	// TooLarge: it answers with status 413, if the body has more than 1 KiB.
	TooLarge
	// TooMany: it answers with status 429 and a Retry-After of a second.
	TooMany
	// BadGateway: it answers with status 502 and a Retry-After of a second. In half of the cases
	// the server has acted on the request.
	BadGateway
	// LostRequest: the client gets an error, and the server nothing.
	LostRequest
	// Delayed: the request comes late, by up to [Weather].MaxDelay.
	Delayed
	// Reordered: the request is held back until up to four later ones have been answered, or
	// until MaxDelay is over.
	Reordered
	// Doubled: the server gets a second copy at the same time.
	Doubled
	// DoubledLate: the server gets a second copy, which is held back as with Reordered.
	DoubledLate
	// Abandoned: the client gets an error, and the server the request after that, held back as with
	// Reordered. Its answer reaches nobody.
	Abandoned
	// CutRequest: the body of the request ends too soon. In half of the cases its length says so.
	CutRequest
	// LostAnswer: the server has acted, and the client gets an error.
	LostAnswer
	// CutAnswer: the body of the answer ends too soon. In half of the cases its length says so.
	CutAnswer
	// Gone: the client has gone before the answer has come. It has no rate: clients do it.
	Gone
	// Faults is the number of faults.
	Faults int = iota
)

var names = [Faults]string{
	"portal", "redirect", "too large", "too many", "bad gateway", "lost request", "delayed", "reordered", "doubled",
	"doubled late", "abandoned", "cut request", "lost answer", "cut answer", "gone",
}

// String returns the name of a fault in a few words.
func (f Fault) String() string { return names[f] }

// ErrLost is the error of a client whose request or answer was lost.
var ErrLost = errors.New("badnet: the connection was cut")

const smallBody = 1 << 10

// Weather is how bad a network is. The zero value is a good one.
type Weather struct {
	// Rates has the probability of each fault, from 0 to 1.
	Rates map[Fault]float64
	// MaxDelay bounds how long a request is held back. If zero, a second.
	MaxDelay time.Duration
	// BytesPerSecond bounds what bodies in both directions take together. If zero, nothing does.
	BytesPerSecond int64
}

// Storm returns a weather in which each fault that has a rate has this one.
func Storm(rate float64) Weather {
	w := Weather{Rates: map[Fault]float64{}}
	for f := range Gone {
		w.Rates[f] = rate
	}
	return w
}

// Network is an [http.RoundTripper] over a bad network. Which faults the first, the second and each other
// request meets follows from the seed alone; how requests meet each other does not. It is safe for
// concurrent use.
type Network struct {
	next  http.RoundTripper
	ctx   context.Context
	close context.CancelFunc
	under sync.WaitGroup // what is sent, whether anybody waits for it or not
	count [Faults]atomic.Int64
	bytes atomic.Int64

	mu       sync.Mutex
	random   *rand.Rand
	weather  Weather
	answered int // requests
	held     []*held
	free     time.Time // when the line has carried what it was given
}

// held is a request that is held back until so many have been answered.
type held struct {
	until int
	over  chan struct{}
}

// New returns a network whose good end is next. Its weather is good at first.
func New(next http.RoundTripper, seed uint64) *Network {
	n := &Network{next: next, random: rand.New(rand.NewPCG(seed, 0))}
	n.ctx, n.close = context.WithCancel(context.Background())
	return n
}

// SetWeather changes the weather for the requests that come after it.
func (n *Network) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

// Count returns how many requests have met a fault.
func (n *Network) Count(f Fault) int64 { return n.count[f].Load() }

// Bytes returns how many bytes of bodies were carried, in both directions.
func (n *Network) Bytes() int64 { return n.bytes.Load() }

// Close ends all requests that are under way. None may follow.
func (n *Network) Close() {
	n.close()
	n.under.Wait()
}

// plan is what becomes of a request.
type plan struct {
	meets  [Faults]bool
	delay  time.Duration // of Delayed
	most   time.Duration // for which it is held back
	behind int           // so many requests
	kept   float64       // of a body that is cut
	coin   bool
}

// plan takes the same number of random numbers for each request, whatever the weather is.
func (n *Network) plan() plan {
	n.mu.Lock()
	defer n.mu.Unlock()
	var p plan
	for f := range Gone {
		p.meets[f] = n.random.Float64() < n.weather.Rates[f]
	}
	p.most = n.weather.MaxDelay
	if p.most == 0 {
		p.most = time.Second
	}
	p.delay = time.Duration(n.random.Float64() * float64(p.most))
	p.behind = 1 + int(4*n.random.Float64())
	p.kept = n.random.Float64()
	p.coin = n.random.Float64() < 0.5
	return p
}

// met reports whether the request meets a fault, and counts it.
func (n *Network) met(p *plan, f Fault) bool {
	if p.meets[f] {
		n.count[f].Add(1)
	}
	return p.meets[f]
}

// reply is an answer with its body, or none.
type reply struct {
	answer *http.Response
	body   []byte
	err    error
}

// RoundTrip sends a request. What it sends goes on when the context of the request is over, as it does in
// a network. It returns [ErrLost], the error of that context, or that of the good end.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		body = b
	}
	p := n.plan()
	p.meets[TooLarge] = p.meets[TooLarge] && len(body) > smallBody
	for f := Portal; f <= BadGateway; f++ {
		if !n.met(&p, f) {
			continue
		}
		if f == BadGateway && p.coin {
			n.send(r, body, len(body))
		}
		return own(r, f), nil
	}
	if n.met(&p, LostRequest) {
		return nil, ErrLost
	}
	if n.met(&p, Doubled) {
		n.begin(func() { n.send(r, body, len(body)) })
	}
	if n.met(&p, DoubledLate) {
		wait := n.hold(1+p.behind, p.most) // the first copy is no later request
		n.begin(func() { wait(); n.send(r, body, len(body)) })
	}
	if n.met(&p, Abandoned) {
		wait := n.hold(p.behind, p.most)
		n.begin(func() { wait(); n.send(r, body, len(body)) })
		return nil, ErrLost
	}
	answer := make(chan reply, 1)
	n.begin(func() { answer <- n.deliver(r, body, &p) })
	select {
	case a := <-answer:
		return n.receive(r, a, &p)
	case <-r.Context().Done():
		n.count[Gone].Add(1)
		return nil, context.Cause(r.Context())
	}
}

// begin does something for which no client may wait.
func (n *Network) begin(do func()) { n.under.Go(do) }

func (n *Network) deliver(r *http.Request, body []byte, p *plan) reply {
	if n.met(p, Delayed) {
		n.wait(p.delay, nil)
	}
	if n.met(p, Reordered) {
		n.hold(p.behind, p.most)()
	}
	length := len(body)
	if length > 0 && n.met(p, CutRequest) {
		body = body[:int(p.kept*float64(length))]
		if p.coin {
			length = len(body)
		}
	}
	return n.send(r, body, length)
}

// receive is what the client gets of an answer.
func (n *Network) receive(r *http.Request, a reply, p *plan) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	if n.met(p, LostAnswer) {
		return nil, ErrLost
	}
	from := io.Reader(bytes.NewReader(a.body))
	if length := len(a.body); length > 0 && n.met(p, CutAnswer) {
		body := a.body[:int(p.kept*float64(length))]
		from = bytes.NewReader(body)
		if p.coin {
			setLength(a.answer, len(body))
		} else {
			from = io.MultiReader(from, cut{})
		}
	}
	a.answer.Body, a.answer.Request = io.NopCloser(from), r
	return a.answer, nil
}

// cut is the end of a body that should go on.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
