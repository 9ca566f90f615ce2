package errand_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// blob is a job with large args.
type blob struct{ Data string }

func (blob) Kind() string { return "blob" }

func TestEnqueueMany_TooManyBytes(t *testing.T) {
	q := openQueue(t, nil)
	jobs := make([]errand.NewJob, 300)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: blob{strings.Repeat("x", 250<<10)}}
	}
	_, err := q.EnqueueMany(t.Context(), jobs)
	if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), `bytes of args and headers": must be at most 67108864`) {
		t.Errorf("error %v: want one that names the limit", err)
	}
	if _, err := q.EnqueueMany(t.Context(), jobs[:100]); err != nil {
		t.Error(err)
	}
}

func TestDeadLetters_EmptyListIsNotAll(t *testing.T) {
	q := openQueue(t, nil)
	_, err := q.DeadLetters().Redrive(t.Context(), errand.DeadFilter{IDs: []errand.ID{}}, nil)
	if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), "ids 0: must not be empty") {
		t.Errorf("Redrive: %v", err)
	}
	if _, err := q.DeadLetters().List(t.Context(), errand.DeadFilter{IDs: []errand.ID{}}, nil); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("List: %v", err)
	}
}

func TestWorker_IdleLearnsThatTheQueueWasClosed(t *testing.T) {
	for _, single := range []bool{true, false} {
		q := openQueue(t, &errand.Options{SQLite: errand.SQLiteOptions{SingleProcess: single}, Logger: quiet})
		w := errand.NewWorker(q, nil)
		ran := make(chan bool)
		errand.Handle(w, func(context.Context, *errand.Job[blob]) error {
			close(ran)
			return nil
		})
		ended := make(chan error)
		go func() { ended <- w.Run(context.Background()) }()
		if _, err := q.Enqueue(t.Context(), blob{}, nil); err != nil {
			t.Fatal(err)
		}
		<-ran
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errand.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
	}
}
