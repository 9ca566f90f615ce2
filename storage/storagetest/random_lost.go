package storagetest

import (
	"errors"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// losingAnswers makes a call of p.real. If the database can lose answers some are lost, and the
// call is repeated until it is answered; its argument is then the Call of what was lost. Without
// mayCommit those calls alone are lost that take no effect: the others are not to be repeated.
func losingAnswers[R any](h *history, t *rapid.T, p *pair, mayCommit bool, call func(repeats int64) (R, error)) (R, error) {
	p.untold = false
	l, ok := h.real.(Loser)
	if !ok || rapid.IntRange(0, 3).Draw(t, "is lost") != 0 {
		return call(0)
	}
	lose := func(calls int) {
		commits := mayCommit && rapid.Bool().Draw(t, "commits")
		l.Lose(p.real, commits, calls)
	}
	lose(rapid.IntRange(0, 3).Draw(t, "calls that do not find out"))
	answer, err := call(0)
	for lost := (*storage.UnknownOutcomeError)(nil); ; {
		if away := errors.Is(err, storage.ErrIO); !away && !errors.As(err, &lost) {
			break
		}
		if rapid.IntRange(0, 3).Draw(t, "is lost again") == 0 {
			lose(1)
		}
		var repeats int64
		if lost != nil {
			repeats = lost.Call
		}
		answer, err = call(repeats)
	}
	l.Lose(p.real, true, 0) // that is, nothing
	p.untold = true
	return answer, err
}
