package engine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// However many jobs an exchange has ended, the clock is read once to know when they are deleted.
func TestPurge_ReadsTheClockOnce(t *testing.T) {
	reads := 0
	l := newLoop(t.Context(), &Config{
		Store: storagetest.NewMemory().Open(), Lanes: new(Lanes), Logger: slog.New(slog.DiscardHandler), Concurrency: 1,
		Retention: storage.Retention{Default: time.Hour},
		Clock:     Wall(func() time.Time { reads++; return time.Now() }),
	}, nil, nil)
	var ended []outcome
	for range 100 {
		ended = append(ended, outcome{Finish: storage.Finish{Outcome: storage.OutcomeDone}, job: &storage.Leased{Queue: "q", Kind: "k"}})
	}
	results := make([]storage.ItemResult, len(ended))
	for i := range results {
		results[i] = storage.Applied
	}
	reads = 0
	if l.taken(ended, results, nil, time.Now()); reads != 1 {
		t.Errorf("the clock is read %d times, want once", reads)
	}
}
