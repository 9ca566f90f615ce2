package gate_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/gate"
)

// meter is something to ask.
type meter struct {
	mu    sync.Mutex
	err   error
	asked []time.Time
}

func (m *meter) ask(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, time.Now())
	return m.err
}

func (m *meter) check(o gate.CheckOptions) *gate.Check {
	return must(gate.NewCheck("the meter", m.ask, &o))
}

// set sets the answer of the meter.
func (m *meter) set(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// times returns when the meter was asked.
func (m *meter) times() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// after returns when the meter was asked since a time, in whole seconds after it.
func (m *meter) after(start time.Time) (seconds []int) {
	for _, at := range m.times() {
		if !at.Before(start) {
			seconds = append(seconds, int(at.Sub(start)/time.Second))
		}
	}
	return seconds
}

var errLow = errors.New("battery at 7 %")

const notYet = "no answer from the meter yet"

func TestCheck_States(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{err: errLow}
		c := m.check(gate.CheckOptions{})
		<-want(t, c, false, notYet)
		<-want(t, c, false, "battery at 7 %")
		m.set(nil)
		<-want(t, c, false, "battery at 7 %")
		changed := want(t, c, true, "")
		m.set(errLow)
		<-changed
		want(t, c, false, "battery at 7 %")
	})
}

// A gate at which nobody waits makes no request. One call of State is worth one.
//
//errand:shows closed gates
func TestCheck_AsksOnlyForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{nil, errLow} {
			m := &meter{err: err}
			c := m.check(gate.CheckOptions{})
			time.Sleep(24 * time.Hour)
			if n := len(m.times()); n != 0 {
				t.Errorf("%d requests before the first call", n)
			}
			for calls := 1; calls <= 3; calls++ {
				c.State()
				time.Sleep(24 * time.Hour)
				if n := len(m.times()); n != calls {
					t.Errorf("%d requests after %d calls", n, calls)
				}
			}
			// The bubble ends only if no goroutine is left.
		}
	})
}

func TestCheck_Times(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		options gate.CheckOptions
		after   time.Duration
		want    []int
	}{
		{"open", nil, gate.CheckOptions{}, 150 * time.Second, []int{0, 60, 120}},
		{"interval", nil, gate.CheckOptions{Interval: time.Hour}, 2*time.Hour + time.Minute, []int{0, 3600, 7200}},
		{"closed", errLow, gate.CheckOptions{}, 1200 * time.Second, []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111}},
		{"backoff", errLow, gate.CheckOptions{Backoff: 10 * time.Second, MaxBackoff: 30 * time.Second}, 125 * time.Second, []int{0, 10, 30, 60, 90, 120}},
		{"a long backoff", errLow, gate.CheckOptions{Backoff: time.Hour}, 2*time.Hour + time.Minute, []int{0, 3600, 7200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, start := &meter{err: c.err}, time.Now()
				c.options.Jitter = -1
				waitUntil(m.check(c.options), start.Add(c.after))
				if got := m.after(start); !slices.Equal(got, c.want) {
					t.Errorf("asked after %v s, want %v", got, c.want)
				}
			})
		})
	}
}

func TestCheck_Jitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		waitUntil(m.check(gate.CheckOptions{}), time.Now().Add(1000*time.Minute))
		least, most := time.Hour, time.Duration(0)
		times := m.times()
		for i, at := range times[1:] {
			d := at.Sub(times[i])
			least, most = min(least, d), max(most, d)
		}
		if least < 48*time.Second || least > 50*time.Second || most > 72*time.Second || most < 70*time.Second {
			t.Errorf("between requests %v to %v, want 48s to 72s", least, most)
		}
	})
}

// A success holds for the interval and a second, and is not believed after that.
func TestCheck_OldSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		c := m.check(gate.CheckOptions{Jitter: -1})
		waitFor(c, true)
		synctest.Wait()
		asked := len(m.times())

		time.Sleep(59 * time.Second)
		want(t, c, true, "")
		if len(m.times()) != asked {
			t.Error("asked though the answer still holds")
		}
		time.Sleep(time.Second) // the request that this call has planned
		synctest.Wait()
		time.Sleep(time.Minute + time.Second)
		<-want(t, c, false, notYet)
		want(t, c, true, "")
	})
}

// However short the interval is, a success reaches a waiter who is slow to call again.
func TestCheck_SlowWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		c := m.check(gate.CheckOptions{Interval: time.Millisecond})
		for open := false; !open; {
			var changed <-chan struct{}
			open, _, changed = c.State()
			<-changed
			time.Sleep(100 * time.Millisecond)
			if len(m.times()) > 10 {
				t.Fatal("the gate does not open")
			}
		}
	})
}

// An old failure is believed until the next answer, and the backoff begins anew.
func TestCheck_OldFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{err: errLow}
		c := m.check(gate.CheckOptions{Jitter: -1})
		waitUntil(c, time.Now().Add(300*time.Second)) // the backoff is 256 s by now
		time.Sleep(time.Hour)

		start := time.Now()
		want(t, c, false, "battery at 7 %")
		waitUntil(c, start.Add(10*time.Second))
		if got := m.after(start); !slices.Equal(got, []int{0, 1, 3, 7}) {
			t.Errorf("asked after %v s, want 0, 1, 3, 7", got)
		}
	})
}

// A call in the middle of the backoff, as for a status page, makes no request.
func TestCheck_CallsKeepToTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{err: errLow}
		c := m.check(gate.CheckOptions{Jitter: -1})
		start := time.Now()
		for range 100 {
			c.State()
			time.Sleep(time.Second)
		}
		if got := m.after(start); len(got) > 8 {
			t.Errorf("asked after %v s", got)
		}
	})
}

func TestCheck_Recheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{err: errLow}
		c := m.check(gate.CheckOptions{Jitter: -1})
		waitUntil(c, time.Now().Add(300*time.Second))
		m.set(nil)
		changed := want(t, c, false, "battery at 7 %")
		start := time.Now()
		c.Recheck()
		<-changed
		want(t, c, true, "")
		if got := m.after(start); !slices.Equal(got, []int{0}) {
			t.Errorf("asked after %v s, want 0", got)
		}

		// Nobody waits any more, and the next request would be due in 300 s.
		m.set(errLow)
		waitUntil(c, start.Add(20*time.Minute))
		time.Sleep(5*time.Minute + time.Second)
		n := len(m.times())
		c.Recheck()
		synctest.Wait()
		if len(m.times()) != n {
			t.Error("Recheck makes a request though nobody waits")
		}
		start = time.Now()
		waitUntil(c, start.Add(10*time.Second))
		if got := m.after(start); !slices.Equal(got, []int{0, 1, 3, 7}) {
			t.Errorf("asked after %v s, want 0, 1, 3, 7", got)
		}
	})
}

// However many wait, there is one request.
func TestCheck_ManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		c := m.check(gate.CheckOptions{})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { waitFor(c, true) })
		}
		wg.Wait()
		synctest.Wait()
		if n := len(m.times()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// Who does not answer in time, closes the gate: whether the request obeys its context
// or not. A second one is not made beside it.
func TestCheck_Timeout(t *testing.T) {
	const late = "no answer from the meter within 10s"
	synctest.Test(t, func(t *testing.T) {
		c := must(gate.NewCheck("the meter", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil))
		start := time.Now()
		<-want(t, c, false, notYet)
		want(t, c, false, late)
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		hang, asked := make(chan struct{}), 0
		c := must(gate.NewCheck("the meter", func(context.Context) error {
			if asked++; asked > 1 {
				<-hang
			}
			return nil
		}, &gate.CheckOptions{Jitter: -1}))
		waitFor(c, true)
		start := time.Now()
		waitFor(c, false)
		changed := want(t, c, false, late)
		if d := time.Since(start); d != 71*time.Second {
			t.Errorf("closed after %v", d)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if isClosed(changed) || asked != 2 {
			t.Errorf("%d requests while one hangs", asked)
		}
		close(hang)
		<-changed
		want(t, c, true, "")
	})
}

// Whatever a function does, the gate has an answer.
func TestCheck_BadFunctions(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for reason, ask := range map[string]func(context.Context) error{
		"panic: no meter":               func(context.Context) error { panic("no meter") },
		"the check ended its goroutine": func(context.Context) error { runtime.Goexit(); return nil },
		long[:300] + "...":              func(context.Context) error { return errors.New(long) },
		"bad":                           func(context.Context) error { return errors.New("b\xffad") },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := must(gate.NewCheck("the meter", ask, nil))
			<-want(t, c, false, notYet)
			want(t, c, false, reason)
		})
	}
}

func TestCheck_refused(t *testing.T) {
	_, err := gate.NewCheck("", nil, &gate.CheckOptions{
		Interval: -1, Backoff: 25 * time.Hour, MaxBackoff: time.Microsecond, Timeout: -time.Second, Jitter: 1.1,
	})
	const times = "must be zero or between 1ms and 24h0m0s"
	wantFaults(t, err, "whom", "must not be empty", "ask", "must not be nil", "interval", times, "backoff", times,
		"max_backoff", times, "timeout", times, "max_backoff", "must not be less than backoff", "jitter", "must be at most 1")
	m := &meter{}
	_, err = gate.NewCheck("the meter", m.ask, &gate.CheckOptions{Jitter: math.NaN()})
	wantFaults(t, err, "jitter", "must be at most 1")
}

// No allocation while nothing changes.
func TestCheck_allocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := (&meter{}).check(gate.CheckOptions{})
		waitFor(c, true)
		synctest.Wait()
		if n := allocations(func() { c.State() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
