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
	// slowAfter is after which time it is logged that the application does not answer.
	slowAfter = time.Second
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

// instant is a Gate that may know that the State of a gate returns at once, as that of a
// prompt one does. Then the loop itself asks it. All others are asked beside the loop. The
// gate is the one that is asked: a gate of the application that embeds this one has the
// method too, and a State of its own, of which this one knows nothing.
type instant interface{ AnswersAtOnce(gate any) bool }

// gate is a [Gate] and what it said last. It belongs to the loop. The bounds of all
// queues and kinds with the same Gate share it.
type gate struct {
	Gate
	instant bool           // the loop asks it; else it is asked beside the loop
	asking                 // of one that is not instant
	of      []storage.Lane // the queues and kinds: of each one name is empty

	at      time.Time       // when it was asked last; zero: not since it may have changed
	changed <-chan struct{} // nil: what it said holds for good
	open    bool            // true before it is asked
	broken  bool            // that it panics was logged
	reason  string          // was logged last
	since   time.Time       // when it was found open or closed, on the Config's clock; zero: it was not asked
	others  *rate.Limiter   // of lines about other reasons
}

// asking is a question that a Gate is asked. Nothing starts for the moment in which an
// answer mostly comes. After that, and until it is answered, what the Gate said before
// counts. A Gate that has not answered at all counts as closed.
type asking struct {
	began   time.Time   // zero: none is under way
	asked   time.Time   // the same on the Config's clock
	timer   *time.Timer // ends the moment, and then the time until that is logged
	overdue bool        // the moment is over
	slow    bool        // that there is no answer was logged
}

// under reports whether a question is under way.
func (a *asking) under() bool { return !a.began.IsZero() }

// gates are those of an engine.
type gates struct {
	cfg  *Config
	all  []*gate
	wake func()       // has the loop look again
	post func(func()) // has the loop run a function
	// turned is told of a gate that was found open or closed, and was not before.
	turned func(*gate)
	// answered is told of each answer of a gate that is not instant.
	answered  func()
	done      chan struct{} // closed at the end of the loop
	questions sync.WaitGroup
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
		_, asksNobody := g.(prompt)
		own, ok := g.(instant)
		gs.all = append(gs.all, &gate{Gate: g, instant: asksNobody || ok && own.AnswersAtOnce(g), open: true, others: rate.NewLimiter(rate.Every(otherReasonEvery), otherReasons)})
	}
	gs.all[i].of = append(gs.all[i].of, of)
	return gs.all[i]
}

// lets reports whether the gate is known to be open; nil is no gate.
func (g *gate) lets() bool {
	return g == nil || (g.holds() || g.overdue && !g.since.IsZero()) && g.open
}

// shuts reports whether the gate is known to be closed, or has never answered. While
// others are asked again, what was leased is not given back.
func (g *gate) shuts() bool {
	return !g.lets() && (!g.open || g.since.IsZero() || !g.under())
}

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

// answer is what a Gate says. The fault is that of one that does not return.
type answer struct {
	open    bool
	reason  string
	changed <-chan struct{}
	fault   string
}

// ask asks the gate. Unless it is instant, the answer comes later.
func (gs *gates) ask(g *gate) {
	if g.instant {
		var said answer
		said.of(g.Gate)
		gs.take(g, said)
		return
	}
	if g.under() {
		return
	}
	began := time.Now()
	late := time.AfterFunc(askEvery, func() { gs.post(func() { gs.late(g, began) }) })
	g.asking = asking{began: began, asked: gs.cfg.Clock.Now(), timer: late}
	gs.questions.Go(func() {
		var said answer
		defer func() { // also if the Gate ends this goroutine
			late.Stop()
			gs.post(func() { gs.answer(g, said) })
		}()
		said.of(g.Gate)
	})
}

// late takes notice that the gate has not answered what it was asked at began, and later
// logs that.
func (gs *gates) late(g *gate, began time.Time) {
	if !g.began.Equal(began) {
		return
	}
	if !g.overdue {
		g.overdue = true
		g.timer.Reset(slowAfter - askEvery)
		return
	}
	g.slow = true
	if g.lets() {
		gs.cfg.Logger.Warn("errand: the gate has not answered for 1 s, and counts as open as it did before", g.attrs()...)
	} else {
		gs.cfg.Logger.Warn("errand: the gate has not answered for 1 s, and counts as closed", g.attrs()...)
	}
}

// answer takes the answer of a gate that was asked beside the loop.
func (gs *gates) answer(g *gate, said answer) {
	if g.slow {
		gs.cfg.Logger.Info("errand: the gate answers again", append(g.attrs(), "took_s", time.Since(g.began).Seconds())...)
	}
	g.asking = asking{}
	gs.take(g, said)
	gs.answered()
}

// shown is what others are shown of the gate.
func (g *gate) shown() gateDoc {
	switch {
	case g.slow && g.since.IsZero():
		return gateDoc{Since: g.asked, Reason: "it was asked then and has not answered"}
	case g.open:
		return gateDoc{Open: true, Since: g.since}
	}
	return gateDoc{Since: g.since, Reason: g.reason}
}

// take takes the answer of the gate.
func (gs *gates) take(g *gate, said answer) {
	was := g.open
	open, reason, changed := said.open, said.reason, said.changed
	if open != was || g.since.IsZero() {
		g.since = gs.cfg.Clock.Now()
	}
	g.at, g.open, g.changed = time.Now(), open, changed
	if said.fault != "" && !g.broken {
		g.broken = true
		gs.cfg.Logger.Error("errand: the gate panics, and counts as closed", append(g.attrs(), "panic", said.fault)...)
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

// of asks a Gate. One that panics, or ends its goroutine, is closed.
func (a *answer) of(g Gate) {
	returned := false
	defer func() {
		r := recover()
		if returned {
			return
		}
		a.fault = "runtime.Goexit was called"
		if r != nil {
			a.fault = fmt.Sprint(r)
		}
		again := make(chan struct{})
		time.AfterFunc(askBroken, func() { close(again) })
		a.open, a.reason, a.changed = false, "the gate panics: "+a.fault, again
	}()
	a.open, a.reason, a.changed = g.State()
	returned = true
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

// end ends the watchers. It waits for gates that are being asked, but not for long.
func (gs *gates) end() {
	close(gs.done)
	gs.watchers.Wait()
	if !slices.ContainsFunc(gs.all, func(g *gate) bool { return g.under() }) {
		return
	}
	answered := make(chan struct{})
	go func() {
		gs.questions.Wait()
		close(answered)
	}()
	timer := time.NewTimer(slowAfter)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	}
}

// open reports whether all gates of s are open. It asks those that have not been
// asked, or may say something else now, up to the first that is closed.
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

// awaitsGate reports whether an attempt has to wait for what a gate says, or for the end of
// the moment.
func (a *attempt) awaitsGate() bool {
	return !a.job.Urgent && slices.ContainsFunc(a.from.bounds, func(b *bound) bool { return b.gate != nil && !b.gate.lets() })
}

// shut reports whether a gate of s is closed, or has never answered.
func (s *source) shut() bool {
	return slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.gate != nil && b.gate.shuts() })
}

// shutOut reports whether a gate has closed, or has never answered, since an attempt was leased.
func (l *loop) shutOut(a *attempt) bool {
	return !a.job.Urgent && !l.sources.gates.open(a.from) && a.from.shut()
}

// heedGates returns to the store the jobs behind gates that have closed since they were
// leased, unless they have started. They lose nothing, not even their place.
func (l *loop) heedGates() {
	if !slices.ContainsFunc(l.sources.gates.all, (*gate).shuts) {
		return
	}
	var back []*attempt
	for _, waiting := range [][]*attempt{l.ready.waiting, l.ready.suspects.waiting} {
		for _, a := range waiting {
			if l.shutOut(a) {
				back = append(back, a.members()...)
			}
		}
	}
	for _, a := range back {
		l.unqueue(a)
		l.giveBack(a, time.Time{})
	}
}
