package errand_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

type remindUser struct{ Name string }

func (remindUser) Kind() string { return "remind_user" }

// In a bubble of testing/synctest a quarter of a year is over in seconds, also
// with a queue on a file. It cannot be an Example, as a bubble needs a test.
func TestExample_synctest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		q, err := errand.Open(t.Context(), path, &errand.Options{
			Durability: errand.Relaxed,
			Logger:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, nil)
		ran := make(chan time.Time, 1)
		errand.Handle(w, func(context.Context, *errand.Job[remindUser]) error {
			ran <- time.Now()
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()

		const quarter = 90 * 24 * time.Hour
		began := time.Now()
		if _, err := q.Enqueue(t.Context(), remindUser{"Ada"}, &errand.JobOptions{Delay: quarter}); err != nil {
			t.Fatal(err)
		}
		if took := (<-ran).Sub(began); took < quarter || took > quarter+time.Second {
			t.Errorf("the job ran after %v", took)
		}

		stop() // all that was started in a bubble must end in it
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
