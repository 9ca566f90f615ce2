package storagetest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB whose failures fail nothing: it keeps them.
type recorder struct {
	testing.TB // for everything that does not concern the verdict

	recovers bool // a panic is a failure too

	mu       sync.Mutex
	failed   bool
	messages []string
	cleanups []func()
}

// record runs check and returns what it failed with, or "" if it passed.
func record(t testing.TB, check func(t testing.TB)) string {
	r := &recorder{TB: t}
	<-r.begin(check)
	return r.verdict()
}

// begin runs check and what it leaves to Cleanup. The channel is closed at the end.
func (r *recorder) begin(check func(t testing.TB)) (done chan struct{}) {
	done = make(chan struct{})
	go func() { // as FailNow ends the goroutine
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.do(r.cleanups[i])
			}
		}()
		r.do(func() { check(r) })
	}()
	return done
}

// do runs f.
func (r *recorder) do(f func()) {
	if r.recovers {
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
	}
	f()
}

// verdict is empty if nothing has failed so far.
func (r *recorder) verdict() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		return ""
	}
	return "failed: " + strings.Join(r.messages, "\n")
}

func (r *recorder) note(failed bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.messages = append(r.messages, message)
}

func (r *recorder) Helper() {}

func (r *recorder) Fail() { r.note(true, "") }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Log(args ...any)                 { r.note(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any) { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)               { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.note(true, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(...any)          { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any) { runtime.Goexit() }
func (r *recorder) SkipNow()             { runtime.Goexit() }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
