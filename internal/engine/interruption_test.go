package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// ending is a way in which a handler can end. What becomes of its job if the handler ends in the
// grace of a stop, after its context has ended by the stop, and after it has lost its lease, is a
// word each; back: it is ready, and has used up nothing.
type ending struct {
	name             string
	run              func(ctx context.Context, r *rig) error
	grace, cut, lost string
}

// gives returns the ending of a handler that returns err.
func gives(name string, err error, grace, cut, lost string) ending {
	return ending{name, func(context.Context, *rig) error { return err }, grace, cut, lost}
}

// oddError is an error whose methods do what they should not.
type oddError struct{ text, is func() }

func (e oddError) Error() string {
	if e.text != nil {
		e.text()
	}
	return "odd"
}

func (e oddError) Is(error) bool {
	if e.is != nil {
		e.is()
	}
	return false
}

func finishes(ctx context.Context, r *rig) error {
	return engine.AttemptOf(ctx).Finish(context.WithoutCancel(ctx), r.store.Store.(storage.TxEnqueuer), func(any) error { return nil })
}

// endings are the ways that there are.
func endings() []ending {
	own := policy.Document{Retry: &policy.Policy{}}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	after := &engine.RetryAfterError{After: time.Minute, Err: errOops}
	all := []ending{
		gives("nil", nil, "done", "done", "back"),
		gives("error", errOops, "back", "back", "back"),
		gives("wrapped", fmt.Errorf("outer: %w", errOops), "back", "back", "back"),
		gives("joined", errors.Join(errOops, context.Canceled), "back", "back", "back"),
		gives("cancelled", context.Canceled, "back", "back", "back"),
		gives("timeout of its own", context.DeadlineExceeded, "back", "back", "back"),
		gives("end of input", io.ErrUnexpectedEOF, "back", "back", "back"),
		gives("server closed", http.ErrServerClosed, "back", "back", "back"),
		gives("connection refused", refused, "back", "back", "back"),
		gives("connection closed", net.ErrClosed, "back", "back", "back"),
		gives("status 404", &policy.StatusError{Status: 404}, "back", "back", "back"),
		gives("status 500", &policy.StatusError{Status: 500}, "back", "back", "back"),
		gives("status 401", &policy.StatusError{Status: 401}, "back", "back", "back"),
		gives("status 503 with Retry-After", &policy.StatusError{Status: 503, After: time.Minute}, "later", "later", "later"),
		gives("marked permanent", policy.Mark(errOops, policy.Permanent), "back", "back", "back"),
		gives("marked unavailable", policy.Mark(errOops, policy.Unavailable), "back", "back", "back"),
		gives("permanent", &engine.PermanentError{Err: errOops}, "back", "back", "back"),
		gives("permanent, cancelled", &engine.PermanentError{Err: context.Canceled}, "back", "back", "back"),
		gives("retry after", after, "later", "later", "later"),
		gives("permanent, retry after", &engine.PermanentError{Err: after}, "later", "later", "later"),
		gives("under a policy without retries", &engine.PolicyError{Policy: own, Err: errOops}, "back", "back", "back"),
		gives("not decoded", &engine.DecodeError{Err: errOops}, "back", "back", "back"),
		gives("snooze", &engine.SnoozeError{For: time.Minute}, "snoozed", "back", "back"),
		gives("cancel", &engine.CancelError{Err: errOops}, "cancelled", "back", "back"),
		gives("unavailable", &engine.UnavailableError{Err: errOops}, "later", "back", "back"),
		gives("hold", &engine.HoldLaneError{For: time.Minute}, "held", "back", "back"),
		gives("shutdown", engine.ErrShutdown, "back", "back", "back"),
		gives("lease lost", engine.ErrLeaseLost, "back", "back", "back"),
		gives("error that panics", oddError{text: func() { panic("odd") }}, "back", "back", "back"),
		gives("error whose Is panics", oddError{is: func() { panic("odd") }}, "back", "back", "back"),
		{"its context's error", func(ctx context.Context, _ *rig) error { return errors.Join(errOops, ctx.Err()) }, "back", "back", "back"},
		{"its context's cause", func(ctx context.Context, _ *rig) error {
			return errors.Join(errOops, context.Cause(ctx))
		}, "back", "back", "back"},
		{"panic", func(context.Context, *rig) error { panic("oops") }, "back", "back", "back"},
		{"panic with an error", func(context.Context, *rig) error { panic(errOops) }, "back", "back", "back"},
		{"panic with nil", func(context.Context, *rig) error { panic(nil) }, "back", "back", "back"},
		{"panic with a permanent error", func(context.Context, *rig) error { panic(&engine.PermanentError{Err: errOops}) }, "back", "back", "back"},
		{"panic with a snooze", func(context.Context, *rig) error { panic(&engine.SnoozeError{For: time.Hour}) }, "back", "back", "back"},
		{"panic with an error whose Is panics", func(context.Context, *rig) error {
			panic(oddError{is: func() { panic("odd") }})
		}, "back", "back", "back"},
		{"abort", func(context.Context, *rig) error { panic(http.ErrAbortHandler) }, "back", "back", "back"},
		{"run-time error", func(context.Context, *rig) error { var m map[string]int; m["a"]++; return nil }, "back", "back", "back"}, //nolint:staticcheck // it is a way
		{"Goexit", func(context.Context, *rig) error { leave(); return nil }, "back", "back", "back"},
		{"finished", finishes, "done", "done", "done"},
		{"finished, permanent", func(ctx context.Context, r *rig) error {
			return errors.Join(finishes(ctx, r), &engine.PermanentError{Err: errOops})
		}, "done", "done", "done"},
		{"finished, panic", func(ctx context.Context, r *rig) error { panic(finishes(ctx, r)) }, "done", "done", "done"},
		{"not committed", func(ctx context.Context, r *rig) error {
			store := r.store.Store.(storage.TxEnqueuer)
			_ = engine.AttemptOf(ctx).Finish(context.WithoutCancel(ctx), store, func(any) error { return errOops })
			return nil
		}, "back", "back", "back"},
	}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) { // as by nohup: then a child would ignore it too
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	for _, s := range []string{"HUP", "INT", "QUIT", "TERM", "KILL"} {
		if err := exec.Command("sh", "-c", "kill -"+s+" $$").Run(); errors.As(err, new(*exec.ExitError)) {
			all = append(all, gives("SIG"+s+" of a child", &engine.PermanentError{Err: err}, "back", "back", "back"))
		}
	}
	return all
}

// became says in a word what became of a job that was tried once.
func (r *rig) became(id storage.ID) string {
	rec := r.job(id)
	word := string(rec.State)
	switch {
	case rec.State == storage.Ready && len(r.held()) > 0:
		word = "held"
	case rec.State == storage.Ready:
		word = "back"
	case rec.State == storage.Scheduled && rec.Snoozes == 1:
		rec.Snoozes = 0
		word = "snoozed"
	case rec.State == storage.Scheduled:
		word = "later"
	}
	if want := (storage.Counters{Attempt: 1}); rec.Counters != want || len(rec.History) > 0 {
		word += fmt.Sprintf(" %+v %v", rec.Counters, rec.History)
	}
	return word
}

// However a handler ends: when the worker stops, or has lost the lease, nothing is used up, and
// no job dies.
//
//errand:shows a stop | | 50 handlers end in all the ways there are, in the grace, after it, and after a lost lease: no retry, crash or death
func TestInterruption_Endings(t *testing.T) {
	for _, e := range endings() {
		for _, c := range []struct {
			name  string
			begin func(r *rig)
			want  string
		}{
			{"grace", func(r *rig) { r.cancel(); pass(0) }, e.grace},
			{"cut", func(r *rig) { r.cancel(); pass(grace) }, e.cut},
			{"Shutdown", func(r *rig) {
				ctx, cancel := context.WithCancel(r.t.Context())
				cancel()
				go func() { _ = r.engine.Shutdown(ctx) }()
				pass(0)
			}, e.cut},
			{"lost", func(r *rig) {
				r.store.failing(func(string) error { return storage.ErrBusy })
				pass(lease)
				r.cancel() // it is still ours to give back, and not to be leased again
				r.store.failing(nil)
				pass(0)
			}, e.lost},
		} {
			t.Run(e.name+", "+c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.cfg.Policy = noRetry.Delivery() // a failure would be the end
					r.cfg.OnDeath = func(*storage.Leased, *storage.Finish, time.Time) *storage.NewJob { return nil }
					r.cfg.StuckAfter = 2 * lease
					end := make(chan struct{})
					r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
						<-end
						return e.run(ctx, r)
					})
					id := r.enqueue("k", 1)[0]
					r.start()
					c.begin(r)
					close(end)
					<-r.ended
					if got := r.became(id); got != c.want {
						t.Errorf("%q, want %q", got, c.want)
					}
					if r.err != nil {
						t.Errorf("Run returned %v", r.err)
					}
				})
			})
		}
	}
}

// What has ended by the signal or the context that is about to stop the worker too was cut off,
// though the worker learns of it later. Another failure, or one that no stop follows, counts.
func TestInterruption_AMomentBefore(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		after time.Duration // the stop
		want  storage.State
	}{
		{"another context", fmt.Errorf("read: %w", context.Canceled), 100 * time.Millisecond, storage.Ready},
		{"no stop", fmt.Errorf("read: %w", context.Canceled), time.Hour, storage.Dead},
		{"another error", errOops, 100 * time.Millisecond, storage.Dead},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = noRetry.Delivery()
				r.handle("k", func(context.Context, *storage.Leased) error { return c.err })
				id := r.enqueue("k", 1)[0]
				r.start()
				time.Sleep(c.after)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				r.wantState(id, c.want, storage.Counters{Attempt: 1})
			})
		})
	}
}

// Jobs of a call that is interrupted: those that are done stay so, the others go back.
func TestInterruption_Batch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.many("k", engine.Batch{Max: 3}, func(ctx context.Context, items []engine.Item) {
			<-ctx.Done()
			items[1].Err, items[2].Err = &engine.PermanentError{Err: errOops}, errOops
		})
		ids := r.enqueue("k", 3)
		r.start()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		for i, want := range []storage.State{storage.Done, storage.Ready, storage.Ready} {
			r.wantState(ids[i], want, storage.Counters{Attempt: 1})
		}
	})
}

// A handler that asks for more than it may have is no death in a stop.
func TestInterruption_UsesUpNothing(t *testing.T) {
	for name, c := range map[string]struct {
		give error
		want storage.Counters
	}{
		"one snooze too many":  {&engine.SnoozeError{For: time.Hour}, storage.Counters{Attempt: 3, Snoozes: 2}},
		"unavailable for long": {&engine.UnavailableError{}, storage.Counters{Attempt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy, r.cfg.MaxSnoozes = noRetry.Delivery(), c.want.Snoozes
				end := make(chan struct{})
				r.cfg.Handlers["k"] = engine.Handler{MaxUnavailable: time.Minute, Run: func(_ context.Context, job *storage.Leased) error {
					if job.Snoozes < c.want.Snoozes {
						return &engine.SnoozeError{}
					}
					<-end
					return c.give
				}}
				id := r.enqueue("k", 1)[0]
				r.start()
				pass(time.Hour)
				r.cancel()
				pass(0)
				close(end)
				<-r.ended
				rec := r.job(id)
				if rec.State == storage.Dead || rec.Counters != c.want {
					t.Errorf("%s %+v, want %+v and alive", rec.State, rec.Counters, c.want)
				}
			})
		})
	}
}

// A job that may be what stops the program is told of with its fifth interruption, over restarts,
// unless its attempts have ended by their contexts.
func TestInterruption_Often(t *testing.T) {
	for name, c := range map[string]struct {
		give func(ctx context.Context) error
		warn bool
	}{
		"own error":   {func(context.Context) error { return &engine.PermanentError{Err: errOops} }, true},
		"panic":       {func(context.Context) error { panic(errOops) }, true},
		"its context": {func(ctx context.Context) error { return fmt.Errorf("send: %w", ctx.Err()) }, false},
		"its cause":   {func(ctx context.Context) error { return context.Cause(ctx) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				id := r.enqueue("k", 1)[0]
				for n := 1; n <= 6; n++ {
					one := r.another() // a process of its own
					one.handle("k", func(ctx context.Context, _ *storage.Leased) error {
						<-ctx.Done()
						return c.give(ctx)
					})
					one.start()
					if err := one.stop(); err != nil {
						t.Error(err)
					}
					r.wantState(id, storage.Ready, storage.Counters{Attempt: n})
					lines := one.logs.with("does the job stop the program?")
					if warned := len(lines) == 1 && strings.Contains(lines[0], id.String()) && strings.Contains(lines[0], "level=WARN"); warned != (c.warn && n >= 5) {
						t.Errorf("interruption %d: logged %q", n, lines)
					}
				}
			})
		})
	}
}

// The log has what the handler said, and its stack if it has panicked.
func TestInterruption_IsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			panic("oops")
		})
		id := r.enqueue("k", 1)[0]
		r.start()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		lines := r.logs.with("attempt was interrupted")
		if len(lines) != 1 || !strings.Contains(lines[0], id.String()) || !strings.Contains(lines[0], "panic: oops") || !strings.Contains(lines[0], "interruption_test.go") {
			t.Errorf("logged: %q", lines)
		}
	})
}
