package sqlite

import (
	"testing"
	"testing/synctest"
	"time"
)

// Close of a Store waits for inotify no longer than a moment, and no longer than it takes.
func TestWake_LetGo(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began, ended := time.Now(), false
			letGo(func() {
				time.Sleep(takes)
				ended = true
			})
			if took, want := time.Since(began), min(takes, letGoMost); took != want {
				t.Errorf("of %v it waits %v, want %v", takes, took, want)
			}
			time.Sleep(takes)
			if synctest.Wait(); !ended {
				t.Errorf("what takes %v was given up", takes)
			}
		})
	}
}
