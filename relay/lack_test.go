package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

func TestLack_String(t *testing.T) {
	l := relay.Lack{Queue: "up", Stream: "00", FoundAt: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), Jobs: make([]errand.ID, 2)}
	if got, want := fmt.Sprint(l), "queue up, stream 00: 2 jobs, found at 2026-11-30T08:00:00Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	l.From, l.To = 3, 5
	if got, want := l.String(), "queue up, stream 00: 2 jobs, and those of requests 3 to 5, which are not listed any more, found at 2026-11-30T08:00:00Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
