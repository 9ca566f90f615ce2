package gate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// All returns a gate that is open while all parts are open. The parts are asked in
// their order, up to the first that is closed, whose reason is the reason of All. So a
// part behind a closed one makes no requests: put a switch before a [Check].
//
// No parts and a nil part are refused with an [errand.FieldError].
func All(parts ...errand.Gate) (errand.Gate, error) {
	if err := checkParts(parts); err != nil {
		return nil, err
	}
	return &all{parts: slices.Clone(parts)}, nil
}

// Any returns a gate that is open while at least one part is open. The parts are asked
// in their order, up to the first that is open. While Any is closed, its reason has those
// of all parts.
//
// No parts and a nil part are refused with an [errand.FieldError].
func Any(parts ...errand.Gate) (errand.Gate, error) {
	if err := checkParts(parts); err != nil {
		return nil, err
	}
	return &some{parts: slices.Clone(parts)}, nil
}

// Not returns a gate that is open while a gate is closed. While Not is closed, its
// reason is the one given here, such as "on a metered link".
//
// A nil gate and an empty reason are refused with an [errand.FieldError].
func Not(g errand.Gate, reason string) (errand.Gate, error) {
	var f faults
	if isNil(g) {
		f.field("gate", nil, "must not be nil")
	}
	if reason == "" {
		f.field("reason", reason, "must not be empty")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return &not{g, reason}, nil
}

func checkParts(parts []errand.Gate) error {
	var f faults
	if len(parts) == 0 {
		f.field("parts", 0, "must be at least one gate")
	}
	for i, g := range parts {
		if isNil(g) {
			f.field(fmt.Sprintf("parts[%d]", i), nil, "must not be nil")
		}
	}
	return f.err()
}

// atOnce reports whether the State of all gates is known to return at once.
func atOnce(gates ...errand.Gate) bool {
	return !slices.ContainsFunc(gates, func(g errand.Gate) bool {
		switch g := g.(type) {
		case *errand.Switch, interface{ AsksNobody() }:
			return false
		case interface{ AnswersAtOnce(gate any) bool }:
			return !g.AnswersAtOnce(g)
		}
		return true
	})
}

type all struct {
	parts []errand.Gate
	merge merge
}

func (a *all) AnswersAtOnce(gate any) bool { return gate == any(a) && atOnce(a.parts...) }

// A closed part keeps All closed whatever the others do: its channel will do.
func (a *all) State() (open bool, reason string, changed <-chan struct{}) {
	var few [8]<-chan struct{} // keeps the list off the heap
	list := few[:0]
	for _, g := range a.parts {
		open, reason, changed := g.State()
		if !open {
			return false, reason, changed
		}
		list = append(list, changed)
	}
	return true, "", a.merge.of(list)
}

type some struct {
	parts []errand.Gate
	merge merge
}

func (s *some) AnswersAtOnce(gate any) bool { return gate == any(s) && atOnce(s.parts...) }

// An open part keeps Any open whatever the others do: its channel will do.
func (s *some) State() (open bool, reason string, changed <-chan struct{}) {
	var few [8]<-chan struct{}
	list := few[:0]
	var reasons [8]string
	why := reasons[:0]
	for _, g := range s.parts {
		open, reason, changed := g.State()
		if open {
			return true, "", changed
		}
		list = append(list, changed)
		why = append(why, reason)
	}
	return false, strings.Join(why, "; "), s.merge.of(list)
}

type not struct {
	gate   errand.Gate
	reason string
}

func (n *not) AnswersAtOnce(gate any) bool { return gate == any(n) && atOnce(n.gate) }

func (n *not) State() (open bool, reason string, changed <-chan struct{}) {
	open, _, changed = n.gate.State()
	if open {
		return false, n.reason, changed
	}
	return true, "", changed
}

// merge makes one channel of several, which is closed with the first of them. Its
// goroutine ends then, or after mergeFor: who still waits calls State again, and nobody
// has to say that he does not wait any more. A merge has one goroutine at most.
type merge struct {
	mu      sync.Mutex
	list    []<-chan struct{}
	changed chan struct{} // of the list
	stop    chan struct{} // ends the goroutine
}

const mergeFor = time.Minute

// of returns a channel that is closed with the first of the list, or later without a
// reason. It is nil if all of the list are.
func (m *merge) of(list []<-chan struct{}) <-chan struct{} {
	list = slices.DeleteFunc(list, func(c <-chan struct{}) bool { return c == nil })
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed != nil {
		select {
		case <-m.changed:
		default:
			if slices.Equal(m.list, list) {
				return m.changed
			}
			close(m.stop)
		}
	}
	m.list, m.changed, m.stop = slices.Clone(list), make(chan struct{}), make(chan struct{})
	go await(m.list, m.stop, m.changed)
	return m.changed
}

// await closes changed when the first of the list or stop is closed, or after mergeFor.
func await(list []<-chan struct{}, stop <-chan struct{}, changed chan<- struct{}) {
	defer close(changed)
	timer := time.NewTimer(mergeFor)
	defer timer.Stop()
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timer.C)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(stop)},
	}
	for _, c := range list {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	reflect.Select(cases)
}
