package engine

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/errandq/errand/storage"
)

const (
	// askEvery is for how long what a gate says holds at least, also if its channel
	// is closed, as a gate might return one that is closed already.
	askEvery = 10 * time.Millisecond
	// askBroken is how long a gate that panics is left alone.
	askBroken = 10 * time.Second
	// A gate that stays closed for another reason is logged a few times, then once in
	// each interval, since a reason may have a number in it that changes all the time.
	otherReasons     = 3
	otherReasonEvery = time.Minute
)

// Gate says whether jobs may start. It is errand.Gate, where its rules are.
type Gate interface {
	State() (open bool, reason string, changed <-chan struct{})
}

// prompt is a Gate that asks nobody: its State costs nothing, so it is asked without a look
// whether jobs wait.
type prompt interface{ AsksNobody() }

// gate is a [Gate] and what it said last. It belongs to the loop. The bounds of all
// queues and kinds with the same Gate share it.
type gate struct {
	Gate
	of []storage.Lane // the queues and kinds: of each one name is empty

	at      time.Time       // when it was asked last; zero: not since it may have changed
	changed <-chan struct{} // nil: what it said holds for good
	open    bool            // true before it is asked
	broken  bool            // that it panics was logged
	reason  string          // was logged last
	since   time.Time       // when it was found open or closed, on the Config's clock; zero: it was not asked
	others  *rate.Limiter   // of lines about other reasons
}

// gates are those of an engine.
type gates struct {
	cfg  *Config
	all  []*gate
	wake func() // has the loop look again
	// turned is told of a gate that was found open or closed, and was not before.
	turned func(*gate)
	done   chan struct{} // closed at the end of the loop
	// watchers wait for the channels of gates, each for that of one answer.
	watchers sync.WaitGroup
}

// gate returns the gate of a queue or a kind, or nil.
func (gs *gates) gate(of storage.Lane, g Gate) *gate {
	if g == nil {
		return nil
	}
	i := -1
	if reflect.ValueOf(g).Comparable() {
		i = slices.IndexFunc(gs.all, func(x *gate) bool { return reflect.ValueOf(x.Gate).Comparable() && x.Gate == g })
	}
	if i < 0 {
		i = len(gs.all)
		gs.all = append(gs.all, &gate{Gate: g, open: true, others: rate.NewLimiter(rate.Every(otherReasonEvery), otherReasons)})
	}
	gs.all[i].of = append(gs.all[i].of, of)
	return gs.all[i]
}

// lets reports whether the gate is known to be open; nil is no gate.
func (g *gate) lets() bool { return g == nil || g.holds() && g.open }

// holds reports whether what the gate said last still holds.
func (g *gate) holds() bool {
	select {
	case <-g.changed:
		if time.Since(g.at) >= askEvery {
			g.at = time.Time{}
		}
	default:
	}
	return !g.at.IsZero()
}

// ask asks the gate.
func (gs *gates) ask(g *gate) {
	was := g.open
	open, reason, changed, fault := g.state()
	if open != was || g.since.IsZero() {
		g.since = gs.cfg.Clock.Now()
	}
	g.at, g.open, g.changed = time.Now(), open, changed
	if fault != nil && !g.broken {
		g.broken = true
		gs.cfg.Logger.Error("errand: the gate panics, and counts as closed", append(g.attrs(), "panic", fault)...)
	}
	if changed != nil {
		gs.watchers.Go(func() { gs.watch(changed) })
	}
	switch {
	case open && !was:
		gs.cfg.Logger.Info("errand: gate is open", g.attrs()...)
	case !open && was:
		g.reason = reason
		gs.cfg.Logger.Info("errand: gate is closed", append(g.attrs(), "reason", reason)...)
	case !open && reason != g.reason && g.others.AllowN(g.at, 1):
		g.reason = reason
		gs.cfg.Logger.Info("errand: gate stays closed for another reason", append(g.attrs(), "reason", reason)...)
	}
	if open != was {
		gs.turned(g)
	}
}

// state asks the Gate. One that panics is closed.
func (g *gate) state() (open bool, reason string, changed <-chan struct{}, fault any) {
	defer func() {
		if fault = recover(); fault != nil {
			again := make(chan struct{})
			time.AfterFunc(askBroken, func() { close(again) })
			open, reason, changed = false, fmt.Sprintf("the gate panics: %v", fault), again
		}
	}()
	open, reason, changed = g.State()
	return open, reason, changed, nil
}

// attrs names the gate in the log.
func (g *gate) attrs() (attrs []any) {
	for _, of := range g.of[:min(len(g.of), mostNamed)] {
		if of.Queue != "" {
			attrs = append(attrs, "queue", of.Queue)
		} else {
			attrs = append(attrs, "kind", of.Kind)
		}
	}
	return attrs
}

// watch has the loop look again once a gate may say something else.
func (gs *gates) watch(changed <-chan struct{}) {
	again := time.NewTimer(askEvery)
	defer again.Stop()
	select {
	case <-changed:
	case <-gs.done:
		return
	}
	select {
	case <-again.C:
	case <-gs.done:
		return
	}
	gs.wake()
}

// end ends the watchers.
func (gs *gates) end() {
	close(gs.done)
	gs.watchers.Wait()
}

// open reports whether all gates of s are open. It asks those that have not been
// asked, or may say something else now.
func (gs *gates) open(s *source) bool {
	for _, b := range s.bounds {
		if b.gate != nil && !b.gate.holds() {
			gs.ask(b.gate)
		}
		if !b.gate.lets() {
			return false
		}
	}
	return true
}

// heedGates returns to the store the jobs behind gates that have closed since they were
// leased, unless they have started. They lose nothing, not even their place.
func (l *loop) heedGates() {
	shut := slices.ContainsFunc(l.sources.gates.all, func(g *gate) bool { return !g.lets() })
	if !shut {
		return
	}
	var back []*attempt
	for _, waiting := range [][]*attempt{l.ready.waiting, l.ready.suspects.waiting} {
		for _, a := range waiting {
			if !a.job.Urgent && !l.sources.gates.open(a.from) {
				back = append(back, a.members()...)
			}
		}
	}
	for _, a := range back {
		l.unqueue(a)
		l.giveBack(a, time.Time{})
	}
}
