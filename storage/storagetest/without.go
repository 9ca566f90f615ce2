package storagetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// Option changes what [Run] asks of a Store.
type Option func(*leftOut)

// Without names what a Store that is being built does not pass yet. A name is that
// of a case, or the beginning of the names of several, followed by "*".
//
// Run runs these cases all the same, and one that passes is an error, so that the
// list only holds what is missing. Here a panic in the goroutine of the case is a
// failure like any other. So is a case that has not ended after ten seconds: its
// context ends then. A name that fits no case is an error too. The log says at the
// end what was left out.
//
// What fails the t that open was given is a failure of the run all the same.
func Without(names ...string) Option {
	return func(l *leftOut) { l.names = append(l.names, names...) }
}

// leftOut is what a run leaves out.
type leftOut struct {
	names []string
	all   int             // how many things it was asked about
	found map[string]bool // names that fit one
	fit   []string        // things that are left out
}

func leaveOut(options []Option) *leftOut {
	l := &leftOut{found: map[string]bool{}}
	for _, o := range options {
		o(l)
	}
	return l
}

// has reports whether what is called name is left out. It is to be asked once.
func (l *leftOut) has(name string) bool {
	l.all++
	out := false
	for _, n := range l.names {
		begin, several := strings.CutSuffix(n, "*")
		if n == name || several && strings.HasPrefix(name, begin) {
			l.found[n], out = true, true
		}
	}
	if out {
		l.fit = append(l.fit, name)
	}
	return out
}

// report ends a run over things.
func (l *leftOut) report(t testing.TB, thing string) {
	t.Helper()
	for _, n := range l.names {
		if !l.found[n] {
			t.Errorf("no %s is called %q: take it from Without", thing, n)
		}
	}
	if len(l.fit) > 0 {
		slices.Sort(l.fit)
		t.Logf("%d of %d %ss are left out: %s", len(l.fit), l.all, thing, strings.Join(l.fit, " "))
	}
}

// missing is how long a case that is left out may take, and then how long it may go
// on after its context has ended. Nobody fails by it: such a case is to fail.
const missing = 10 * time.Second

// mustFail runs a case that is left out.
func (c testCase) mustFail(t testing.TB, db DB) {
	t.Helper()
	if c.failure(t, db, missing) == "" {
		t.Errorf("case %s passes: take it from Without", c.name)
	}
}

// failure returns what a case fails with, or "" if it passes.
func (c testCase) failure(t testing.TB, db DB, limit time.Duration) string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &recorder{TB: t, recovers: true}
	done := r.begin(func(t testing.TB) { c.checkIn(ctx, t, db) })
	for range 2 {
		select {
		case <-done:
			if ctx.Err() != nil {
				r.Errorf("ended only with its context")
			}
			return r.verdict()
		case <-time.After(limit):
			cancel()
		}
	}
	return "does not end"
}
