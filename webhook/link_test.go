package webhook

import (
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asked is a gate whose State is a function, which gets how often it was called before.
type asked struct {
	state func(n int) bool
	mu    sync.Mutex
	n     int
}

func (a *asked) State() (open bool, reason string, changed <-chan struct{}) {
	a.mu.Lock()
	n := a.n
	a.n++
	a.mu.Unlock()
	return a.state(n), "", nil
}

func (a *asked) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// linesOf returns a logger and what it was told, a line for each record.
func linesOf() (log *slog.Logger, said func() []string) {
	var text strings.Builder
	log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return log, func() []string { return strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' }) }
}

// together has many ask at the same time, and returns what each of them was told, and
// after which time.
func together(l *link, g *asked, log *slog.Logger) (answers []bool, took []time.Duration) {
	const many = 10
	answers, took = make([]bool, many), make([]time.Duration, many)
	began := time.Now()
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			answers[i] = l.isOpen(g, log)
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	return slices.Compact(answers), slices.Compact(took)
}

// All that ask at the same time get the answer to one question, also the first one.
//
//errand:shows calls into the application that block | | deliveries that fail wait for Online for a second together, then its last answer counts, and the log names it
func TestLink_together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, said := linesOf()
		var l link
		g := &asked{state: func(n int) bool { time.Sleep(900 * time.Millisecond); return n%2 == 0 }}
		for i := range 4 {
			answers, took := together(&l, g, log)
			if len(answers) != 1 || answers[0] != (i%2 == 0) || len(took) != 1 || took[0] != 900*time.Millisecond || g.times() != i+1 {
				t.Errorf("question %d: answers %v after %v, the gate was asked %d times", i, answers, took, g.times())
			}
		}
		if lines := said(); len(lines) > 0 {
			t.Errorf("the log has %q", lines)
		}
	})
}

// A gate that blocks holds up who asks for a second, and the log names it, once. Until it
// answers its last answer counts.
//
//errand:shows calls into the application that block
func TestLink_blocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, said := linesOf()
		var l link
		goOn := make(chan bool)
		g := &asked{state: func(int) bool { return <-goOn }}
		for i, was := range []bool{false, true} {
			for n, wait := range []time.Duration{time.Second, 0} {
				answers, took := together(&l, g, log)
				if len(answers) != 1 || answers[0] != was || len(took) != 1 || took[0] != wait {
					t.Errorf("while it blocks, %d: answers %v after %v, want %v after %v", n, answers, took, was, wait)
				}
				time.Sleep(time.Hour)
			}
			if g.times() != i+1 {
				t.Errorf("a gate that blocks was asked %d times, want %d", g.times(), i+1)
			}
			goOn <- !was
			synctest.Wait()
			want := []string{
				`level=WARN msg="errand: the gate Online has not answered for 1 s, and counts as closed"`,
				`level=INFO msg="errand: the gate Online answers again" took_s=7201`,
				`level=WARN msg="errand: the gate Online has not answered for 1 s, and counts as open as it did before"`,
				`level=INFO msg="errand: the gate Online answers again" took_s=7201`,
			}
			if lines := said(); !slices.Equal(lines, want[:2*i+2]) {
				t.Errorf("the log has %q", lines)
			}
		}
	})
}

// A gate that panics or ends its goroutine is closed.
//
//errand:shows calls into the application that block
func TestLink_panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := linesOf()
		var l link
		g := &asked{state: func(n int) bool {
			switch n {
			case 1:
				panic("broken")
			case 3:
				runtime.Goexit()
			}
			return true
		}}
		for i := range 5 {
			if open := l.isOpen(g, log); open != (i%2 == 0) {
				t.Errorf("question %d: open %v", i, open)
			}
		}
	})
}
