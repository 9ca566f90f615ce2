package errand_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

type Reading struct {
	Sensor string
	Value  float64
}

func (Reading) Kind() string { return "reading" }

// upload stands for one request with many readings, which the other side answers for
// each of them.
func upload(_ context.Context, readings []Reading) (answers []error, err error) {
	fmt.Println("uploading", len(readings))
	answers = make([]error, len(readings))
	for i, r := range readings {
		if r.Value > 100 {
			answers[i] = errors.New("out of range")
		}
	}
	return answers, nil
}

// Up to 500 readings go in one request, as soon as 100 wait or one has waited for a second.
// One that the other side refuses is a dead letter of its own.
func ExampleHandleMany() {
	q, remove := tempQueue(nil)
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	w := errand.NewWorker(q, nil)
	errand.HandleMany(w, func(ctx context.Context, jobs []*errand.Job[Reading]) error {
		readings := make([]Reading, len(jobs))
		for i, job := range jobs {
			readings[i] = job.Args
		}
		answers, err := upload(ctx, readings)
		if err != nil {
			return err // all are tried again; if it is permanent, in halves
		}
		failed := errand.BatchError{}
		for i, job := range jobs {
			if answers[i] != nil {
				failed[job.ID] = errand.Permanent(answers[i])
			}
		}
		return failed // the others are done
	}, errand.BatchOptions{Max: 500, Min: 100, Wait: time.Second})

	jobs := make([]errand.NewJob, 150)
	for i := range jobs {
		jobs[i].Args = Reading{Sensor: "boiler", Value: float64(i)}
	}
	must(q.EnqueueMany(ctx, jobs))
	ended := must(q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventDone, errand.EventDead}}, 1000))
	go func() {
		dead := 0
		for range 150 {
			if e := <-ended.Events(); e.Type == errand.EventDead {
				dead++
			}
		}
		fmt.Println("refused:", dead)
		stop()
	}()
	check(w.Run(ctx))
	// Output:
	// uploading 150
	// refused: 49
}
