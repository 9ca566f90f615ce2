package policy

import "fmt"

// Phase is the part of a delivery policy that a retry belongs to. It depends only on
// the retry index: see [Policy.Next].
type Phase uint8

// The phases, in the order in which a job passes through them.
const (
	PhaseFirst       Phase = iota // the first attempt, which is no retry
	PhaseImmediate                // retried without delay
	PhasePreBackoff               // after MinDelay each
	PhaseBackoff                  // from MinDelay to MaxDelay, by the backoff function
	PhasePostBackoff              // after MaxDelay each
)

var phaseNames = []string{"first", "immediate", "pre-backoff", "backoff", "post-backoff"}

// String returns the name of the phase in lower case, as it is stored and logged.
func (p Phase) String() string { return enumString("Phase", phaseNames, p) }

// MarshalText implements [encoding.TextMarshaler].
func (p Phase) MarshalText() ([]byte, error) { return enumText("phase", phaseNames, p) }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts what String
// returns, and nothing else.
func (p *Phase) UnmarshalText(text []byte) error { return enumParse("phase", phaseNames, text, p) }

func enumString[E ~uint8](typ string, names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", typ, uint8(e))
}

func enumText[E ~uint8](what string, names []string, e E) ([]byte, error) {
	if int(e) < len(names) {
		return []byte(names[e]), nil
	}
	return nil, &Fault{Path: what, Value: fmt.Sprint(uint8(e)), Want: oneOf(names)}
}

func enumParse[E ~uint8](what string, names []string, text []byte, e *E) error {
	for i, name := range names {
		if name == string(text) {
			*e = E(i)
			return nil
		}
	}
	return &Fault{Path: what, Value: quote(string(text)), Want: oneOf(names)}
}
