package clock_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/clock"
)

// A wall clock that blocks holds a reader up once, and for 250 ms.
func TestBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frozen := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var blocked atomic.Pointer[chan struct{}]
		var asked atomic.Int64
		var told []bool
		now := clock.Beside(func() time.Time {
			asked.Add(1)
			if b := blocked.Load(); b != nil {
				<-*b
			}
			return frozen
		}, func(answers bool) { told = append(told, answers) })
		want := func(after time.Duration, want time.Time) {
			t.Helper()
			began := time.Now()
			if got := now(); !got.Equal(want) || time.Since(began) != after {
				t.Errorf("%v after %v, want %v after %v", got, time.Since(began), want, after)
			}
		}
		want(0, frozen)
		time.Sleep(time.Minute)
		want(0, frozen) // whatever the monotonic clock says
		b := make(chan struct{})
		blocked.Store(&b)
		want(250*time.Millisecond, frozen.Add(250*time.Millisecond))
		for i := range 100 {
			time.Sleep(time.Second)
			want(0, frozen.Add(250*time.Millisecond+time.Duration(i+1)*time.Second))
		}
		if n := asked.Load(); n != 3 {
			t.Errorf("asked %d times, want 3: not while it blocks", n)
		}
		synctest.Wait()
		if !slices.Equal(told, []bool{false}) {
			t.Errorf("told %v while it blocks", told)
		}
		blocked.Store(nil)
		close(b)
		synctest.Wait()
		want(0, frozen)
		if !slices.Equal(told, []bool{false, true}) {
			t.Errorf("told %v", told)
		}
	})
}

// One that is slow holds readers up for a tenth of the time, and its readings count once
// they are there.
func TestBeside_slow(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			now := clock.Beside(func() time.Time {
				defer time.Sleep(takes)
				return time.Now().Add(time.Duration(ahead.Load()))
			}, func(bool) {})
			now()
			ahead.Store(int64(time.Hour))
			began, waited := time.Now(), time.Duration(0)
			for range 10_000 {
				asked := time.Now()
				now()
				waited += time.Since(asked)
				time.Sleep(time.Millisecond)
			}
			if most := 250*time.Millisecond + time.Since(began)/10; waited > most {
				t.Errorf("a clock that takes %v: readers have waited for %v, want at most %v", takes, waited, most)
			}
			if wrong := time.Until(now()) - time.Hour; wrong.Abs() > 2*takes {
				t.Errorf("a clock that takes %v: a reading is wrong by %v", takes, wrong)
			}
			time.Sleep(time.Second) // for the last one
		})
	}
}

func TestBeside_doesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		calls := []func(){func() {}, runtime.Goexit, func() { panic("out of order") }, func() {}}
		now := clock.Beside(func() time.Time {
			call := calls[0]
			calls = calls[1:]
			call()
			return at
		}, func(bool) {})
		now()
		time.Sleep(time.Second)
		if got := now(); !got.Equal(at.Add(time.Second)) {
			t.Errorf("%v after Goexit", got)
		}
		func() {
			defer func() {
				if r := recover(); r != "out of order" {
					t.Errorf("recovered %v", r)
				}
			}()
			now()
		}()
		if got := now(); !got.Equal(at) {
			t.Errorf("%v after a panic", got)
		}
	})
}
