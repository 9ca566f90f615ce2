package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
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

// Lacking names what a Store and its [DB] lack of what is optional: "storage.Notifier" for an
// interface, or another word for what the message of a failed case says. [Run] skips the cases
// that need it, and logs how many there are of each. To skip a case for want of anything else is
// an error, and so is a name for want of which no case is skipped.
//
// What a Store says itself that it lacks, see [storage.Partial], is not to be named: a case is
// skipped, and counted, where a call or an item that it makes needs that.
func Lacking(names ...string) Option {
	return func(l *leftOut) { l.lacking.names = append(l.lacking.names, names...) }
}

// lacking is what a Store may lack, and how many cases were skipped for want of it.
type lacking struct {
	names   []string
	ran     int
	skipped map[string]int
}

// skip ends a case that needs something optional which the store lacks.
func (f *fixture) skip(what string) {
	f.Helper()
	if l := f.lacking; l != nil && !slices.Contains(l.names, what) {
		f.Fatalf("the case needs what the store lacks: %s. If it may lack that, name it in Lacking", what)
	}
	f.skipped(what)
}

// skipped is skip for what the store is known to lack.
func (f *fixture) skipped(what string) {
	f.Helper()
	if l := f.lacking; l != nil {
		if l.skipped == nil {
			l.skipped = map[string]int{}
		}
		l.skipped[what]++
	}
	f.Skipf("the store lacks: %s", what)
}

// lacked returns the feature of [storage.Partial] for want of which a call returned err, or "".
func (f *fixture) lacked(err error) storage.Feature {
	if !errors.Is(err, storage.ErrLacking) {
		return ""
	}
	_, names, _ := strings.Cut(err.Error(), storage.ErrLacking.Error()+": ")
	for _, feature := range f.partial {
		if strings.HasPrefix(names+", ", string(feature)+", ") {
			return feature
		}
	}
	return ""
}

// able ends the case if a call returned err for want of what the store lacks.
func (f *fixture) able(err error) {
	f.Helper()
	if feature := f.lacked(err); feature != "" {
		f.skipped(string(feature))
	}
}

// report ends a run over so many cases, of which some may not have been chosen to run.
func (l *lacking) report(t testing.TB, all int) {
	t.Helper()
	for _, name := range l.names {
		if l.skipped[name] == 0 && l.ran == all {
			t.Errorf("no case is skipped for want of %s: take it from Lacking", name)
		}
	}
	n := 0
	var each []string
	for _, name := range slices.Sorted(maps.Keys(l.skipped)) {
		n += l.skipped[name]
		each = append(each, fmt.Sprintf("%s %d", name, l.skipped[name]))
	}
	if n > 0 {
		t.Logf("%d of %d cases are skipped, for want of: %s", n, l.ran, strings.Join(each, ", "))
	}
}

// leftOut is what a run leaves out.
type leftOut struct {
	lacking lacking

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
	done := r.begin(func(t testing.TB) { c.checkIn(ctx, t, db, nil) })
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
