package rules

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

func TestDueTime(t *testing.T) {
	const created = 100 * second
	now := at(created).Add(500)
	debounce := func(d time.Duration) storage.NewJob {
		return storage.NewJob{Conflict: &storage.Conflict{Mode: storage.Debounce, Quiet: d}}
	}
	for _, c := range []struct {
		what  string
		job   storage.NewJob
		state storage.State
		at    int64
		delay int64
	}{
		{"at once", storage.NewJob{}, storage.Ready, created, 0},
		{"at once, with another Conflict", storage.NewJob{Conflict: &storage.Conflict{Mode: storage.Replace, Quiet: time.Second}}, storage.Ready, created, 0},
		{"now", storage.NewJob{DueAt: now}, storage.Ready, created + 1, 0},
		{"before", storage.NewJob{DueAt: at(created - second)}, storage.Ready, created - second, 0},
		{"later", storage.NewJob{DueAt: now.Add(1)}, storage.Scheduled, created + 1, 0},
		{"much later", storage.NewJob{DueAt: at(created + second)}, storage.Scheduled, created + second, 0},
		{"a delay", storage.NewJob{Delay: time.Second}, storage.Scheduled, created + second + 1, second + 1},
		{"a short delay", storage.NewJob{Delay: 1}, storage.Scheduled, created + 1, 1},
		{"no delay", storage.NewJob{Delay: -time.Second}, storage.Ready, created, 0},
		{"debounce", debounce(time.Second), storage.Scheduled, created + second + 1, second + 1},
	} {
		state, due, delay := DueTime(now, &c.job)
		if state != c.state || due != c.at || delay != c.delay {
			t.Errorf("%s: %s, due at %d, with a delay of %d", c.what, state, due-created, delay)
		}
	}
}
