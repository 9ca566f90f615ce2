package apitest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// The application closes the gate when it hears that the network is gone.
func ExampleSwitch() {
	online := new(errand.Switch)
	online.Close("no carrier")

	open, reason, changed := online.State()
	fmt.Println("open:", open, "| reason:", reason)

	go online.Open()
	<-changed
	open, _, _ = online.State()
	fmt.Println("open:", open)
	// Output:
	// open: false | reason: no carrier
	// open: true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSwitch(t *testing.T) {
	s := new(errand.Switch)
	for _, step := range []struct {
		name    string
		do      func()
		open    bool
		reason  string
		changed bool
	}{
		{"the zero Switch", func() {}, true, "", false},
		{"opened twice", s.Open, true, "", false},
		{"closed", func() { s.Close("no carrier") }, false, "no carrier", true},
		{"closed again", func() { s.Close("no carrier") }, false, "no carrier", false},
		{"another reason", func() { s.Close("no address") }, false, "no address", true},
		{"no reason", func() { s.Close("") }, false, "closed", true},
		{"opened", s.Open, true, "", true},
	} {
		_, _, before := s.State()
		step.do()
		open, reason, after := s.State()
		if open != step.open || reason != step.reason || isClosed(before) != step.changed || isClosed(after) || after == nil {
			t.Errorf("%s: %t, %q, changed %t; want %t, %q, %t", step.name, open, reason, isClosed(before), step.open, step.reason, step.changed)
		}
	}
	if open, _, _ := new(errand.Switch).State(); !open {
		t.Error("the zero Switch is closed")
	}
	if n := testing.AllocsPerRun(100, func() { s.Open(); s.State() }); n != 0 {
		t.Errorf("%v allocations while nothing changes", n)
	}
}

// Who waits for the state that it has not seen misses no change.
func TestSwitch_noChangeIsMissed(t *testing.T) {
	const turns = 1000
	s := new(errand.Switch)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				_, reason, changed := s.State()
				if reason == "last" {
					return
				}
				<-changed // for ever, if the last change was missed
			}
		})
	}
	for i := range turns {
		s.Close(fmt.Sprint(i))
		s.Open()
	}
	s.Close("last")
	wg.Wait()
}

// What failed before a gate closed runs as it opens, unless its queue has NoKick.
func TestGate_kicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		online, refused := new(errand.Switch), errors.New("refused")
		q, _ := memoryQueue(t, errand.Options{Policy: hourly, Queues: map[string]errand.QueueOptions{
			"default": {Gate: online}, "slow": {Gate: online, NoKick: true},
		}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "slow"}})
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			if job.Attempt == 1 {
				return refused
			}
			return nil
		})
		kicked, stays := enqueue(t, q, note{}, nil), enqueue(t, q, note{}, &errand.JobOptions{Queue: "slow"})
		stop := run(t, w)
		time.Sleep(time.Second)
		online.Close("no carrier")
		enqueue(t, q, note{}, nil) // for which the gate is asked
		time.Sleep(time.Minute)
		online.Open()
		time.Sleep(time.Second)
		for id, want := range map[errand.ID]errand.State{kicked: errand.Done, stays: errand.Scheduled} {
			if j := lookUp(t, q, id); j.State != want || j.Retry != 1 {
				t.Errorf("the job of queue %s is %s after %d retries, want %s after 1", j.Queue, j.State, j.Retry, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
