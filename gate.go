package errand

import (
	"sync"

	"github.com/errandq/errand/internal/engine"
)

// Gate says whether something may start now, and if not, why. A [Switch] is a
// Gate that the application opens and closes.
//
// An implementation is safe for concurrent use. State does not block: a Gate that has to
// ask somebody, over the network for instance, asks in the background. If State blocks
// all the same, workers go by its last answer, or take the gate for closed if there was
// none.
type Gate interface {
	// State returns whether the gate is open, and why if it is closed. The reason
	// is a short text for people, such as "no carrier". It is of no meaning while
	// the gate is open.
	//
	// Changed is closed when the gate opens or closes next. Asking and subscribing are one
	// call, so that no change between the two is missed. Once changed is closed, the caller
	// calls State again. The answer may be the same as before: a Gate may close the channel
	// for another reason, or to learn whether somebody still waits. A nil channel means that
	// the gate does not change any more.
	//
	// A call of State says that somebody wants to know. A Gate spends effort on finding out,
	// such as a request, only while it is called: without a call it comes to rest soon. So a
	// caller with nothing to start does not call.
	State() (open bool, reason string, changed <-chan struct{})
}

// Switch is a [Gate] that the application opens and closes by what it knows: from
// a modem, a network manager, a charger. It is safe for concurrent use. It has no
// goroutine, and allocates only after a change. The zero Switch is open. A Switch
// must not be copied after first use.
type Switch struct {
	mu      sync.Mutex
	closed  bool
	reason  string
	changed chan struct{} // nil: nobody has asked since the last change
}

// Open opens the switch. It does nothing if the switch is open.
func (s *Switch) Open() { s.set(false, "") }

// Close closes the switch for a reason, such as "no carrier". If the reason is
// empty, it is "closed". Closing a closed switch changes its reason.
func (s *Switch) Close(reason string) {
	if reason == "" {
		reason = "closed"
	}
	s.set(true, reason)
}

// switchGate is a Switch as engines know it: they ask it themselves, see engine.Gate.
type switchGate struct{ *Switch }

func (s switchGate) AnswersAtOnce(gate any) bool { return gate == any(s) }

// gateOf returns a gate as engines know it.
func gateOf(g Gate) engine.Gate {
	if s, ok := g.(*Switch); ok {
		return switchGate{s}
	}
	return g
}

// State implements [Gate]. The reason is empty while the switch is open.
func (s *Switch) State() (open bool, reason string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return !s.closed, s.reason, s.changed
}

func (s *Switch) set(closed bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == closed && s.reason == reason {
		return
	}
	s.closed, s.reason = closed, reason
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
