package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	// spareConns is how many connections of the pool are left to calls that wait for no key and
	// no group: one for an Enqueue, and one for an exchange.
	spareConns = 2
	// linePatience is for how long a call waits before it goes to the server, where lock_timeout
	// says how long it waits.
	linePatience = 10 * time.Second
)

func newLines(maxConns int32) lines {
	return lines{conns: make(chan struct{}, max(1, maxConns-spareConns)), patience: linePatience, of: map[string]*line{}}
}

// lines has calls of the Store wait for each other that name the same unique key or the same
// group. The server would do so too, but there each of them has a connection meanwhile: if a
// transaction holds the key for long, they would soon have all of the pool. So the first of them
// alone goes to the server, and the others wait here.
//
// Calls about different keys that are held may still be many. So the calls that go to the server
// have at most so many connections as conns has room for, and the others of the pool are left to
// whoever names no key. A call about a free key waits for others only while as many held ones
// are waited for.
//
// An exchange goes to the server at once, whatever jobs it ends: its heartbeats wait for nothing
// here. There is one for each worker.
type lines struct {
	conns    chan struct{} // has a value for each call that has a connection
	patience time.Duration

	mu sync.Mutex
	of map[string]*line
}

// line is the calls that name one key or group.
type line struct {
	first chan struct{} // has a value while the name is that of a call which does not wait here
	calls int
}

// inLine is runTold for a transaction that locks keys and groups. It comes after the calls before it that
// name one of them. Workers are told of what was decided.
func (s *Store) inLine(ctx context.Context, dec *deciding, fn func(ctx context.Context, c *pgx.Conn) error) error {
	err := s.inTurn(ctx, dec, fn)
	if err == nil {
		s.wake.committed(dec.news)
	}
	return err
}

func (s *Store) inTurn(ctx context.Context, dec *deciding, fn func(ctx context.Context, c *pgx.Conn) error) error {
	names := dec.names()
	if len(names) == 0 {
		return s.runTold(ctx, fn)
	}
	leave, err := s.lines.enter(ctx, names)
	if err != nil {
		return err
	}
	defer leave()
	return s.runTold(ctx, fn)
}

// enter returns once a call is the first that has one of its names, and may have a connection.
// The names are sorted, so that calls do not wait for each other in a circle.
func (l *lines) enter(ctx context.Context, names []string) (leave func(), err error) {
	waits, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	places := append(l.join(names), l.conns)
	taken := 0
	leave = func() {
		for _, place := range places[:taken] {
			<-place
		}
		l.part(names)
	}
	for _, place := range places {
		select {
		case place <- struct{}{}:
			taken++
		case <-waits.Done():
			leave()
			return nil, cmp.Or(ctx.Err(), fmt.Errorf("%w: others wait for the same unique key or group", storage.ErrBusy))
		}
	}
	return leave, nil
}

// join adds a call to the lines of names.
func (l *lines) join(names []string) (places []chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.of[name] == nil {
			l.of[name] = &line{first: make(chan struct{}, 1)}
		}
		l.of[name].calls++
		places = append(places, l.of[name].first)
	}
	return places
}

// part takes a call out of the lines of names.
func (l *lines) part(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.of[name].calls--; l.of[name].calls == 0 {
			delete(l.of, name)
		}
	}
}
