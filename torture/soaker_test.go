//go:build unix

package torture_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["soak"] = soak }

const (
	soakKeep  = 5 * time.Second // retention: what there is at a time is bounded
	soakLive  = 1000            // jobs that have not ended, beyond which nobody adds any
	soakBatch = 8               // jobs of an EnqueueMany at most
)

// soaker is a mixer that can go on for ever: it remembers nothing of its jobs,
// and holds back while too many wait.
type soaker struct {
	mixer
	crowded atomic.Bool
}

// soak is a program that does all that errand can do until it is told to stop,
// at which it works off all that is left if it is to finish. It says how many
// goroutines it has, each second.
func soak(p part, v *voice) error {
	ctx := context.Background()
	enough, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	q, err := p.open(v, nil)
	for began := time.Now(); errors.Is(err, errand.ErrBusy); q, err = p.open(v, nil) {
		// Not passed over: with nobody who locks the database it says that a
		// write of another process, or its turn, has taken that long.
		fmt.Fprintf(os.Stderr, "opening, for %v: %v\n", time.Since(began).Round(time.Millisecond)+p.Busy, err)
	}
	if err != nil {
		return err
	}
	v.say("ready")
	s := &soaker{mixer: mixer{part: p, plans: append(slices.Clone(plans), "stop"), voice: v, q: q, enough: enough.Done()}}
	if err := s.until(ctx, func() error {
		return q.Schedule(ctx, errand.Schedule{Name: "often", Spec: "@every 1s", Args: order{N: tickNumber}})
	}); err != nil {
		return err
	}
	worker, worked := s.worker(), make(chan error, 1)
	go func() { worked <- worker.Run(ctx) }()
	var all sync.WaitGroup
	errs, seed := make(chan error, s.Senders+3), rand.NewPCG(p.Seed, 0)
	work := func(f func(*rand.Rand) error) {
		r := rand.New(rand.NewPCG(seed.Uint64(), 0))
		all.Go(func() { errs <- f(r) })
	}
	for range s.Senders {
		work(s.produce)
	}
	work(s.count)
	work(s.redriveAll)
	if p.Finish {
		work(s.pauses)
	}
	all.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	if p.Finish {
		v.say("draining")
		if err := s.until(ctx, func() error { return q.Schedules().Pause(ctx, "often") }); err != nil {
			return err
		}
		if err := s.untilDone(); err != nil {
			return err
		}
	}
	if err := worker.Shutdown(ctx); err != nil {
		return err
	}
	return errors.Join(<-worked, q.Close())
}

// until does something until it succeeds, whatever the machine is at.
func (s *soaker) until(ctx context.Context, f func() error) error {
	for {
		if err := f(); err == nil || !bearable(err) || ctx.Err() != nil {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// bearable returns what faults make of calls, and what others have done
// meanwhile: no reason to stop.
func bearable(err error) bool {
	return errors.Is(err, errand.ErrBusy) || errors.Is(err, errand.ErrFull) || errors.Is(err, errand.ErrNotFound)
}

// rest waits, and is false once it is enough.
func (s *soaker) rest(d time.Duration) bool {
	select {
	case <-s.enough:
		return false
	case <-time.After(d):
		return true
	}
}

// produce enqueues, one by one and several at a time.
func (s *soaker) produce(r *rand.Rand) error {
	for s.rest(s.Pause) {
		if s.crowded.Load() {
			continue
		}
		var err error
		if r.IntN(20) == 0 {
			err = s.batch(r, 1+r.IntN(soakBatch))
		} else {
			n, _ := s.number()
			err = s.enqueue(n, r)
		}
		if err != nil && !bearable(err) {
			return err
		}
	}
	return nil
}

func (s *soaker) batch(r *rand.Rand, size int) error {
	jobs, numbers := make([]errand.NewJob, size), make([]int, size)
	for i := range jobs {
		numbers[i], _ = s.number()
		o, opts := s.order(numbers[i], r)
		jobs[i] = errand.NewJob{Args: o, Options: opts}
		s.voice.say("try %d %s", o.N, cmp.Or(opts.Queue, "default"))
	}
	all, err := s.q.EnqueueMany(context.Background(), jobs)
	for i, e := range all {
		if !e.Duplicate {
			s.voice.say("enqueued %d %s", numbers[i], e.ID)
		}
	}
	return err
}

// count says each second what the process is made of, and finds out whether
// there are too many jobs.
func (s *soaker) count(*rand.Rand) error {
	for i := 0; s.rest(100 * time.Millisecond); i++ {
		if i%10 == 0 {
			s.voice.say("pulse %d", runtime.NumGoroutine())
		}
		counts, err := s.q.Counts(context.Background())
		if err != nil && !bearable(err) {
			return err
		}
		live := int64(0)
		for _, c := range counts {
			if c.State != errand.Done && c.State != errand.Cancelled {
				live += c.N
			}
		}
		s.crowded.Store(live > soakLive)
	}
	return nil
}

// redriveAll redrives all dead letters, again and again.
func (s *soaker) redriveAll(*rand.Rand) error {
	ctx := context.Background()
	for s.rest(300 * time.Millisecond) {
		page, err := s.q.DeadLetters().List(ctx, errand.JobFilter{}, &errand.ListOptions{Limit: 100})
		for _, j := range page.Jobs {
			if err == nil {
				_, err = s.q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{j.ID}}, nil)
			}
		}
		if err != nil && !bearable(err) {
			return err
		}
	}
	return nil
}

// pauses pauses a queue now and then.
func (s *soaker) pauses(r *rand.Rand) error {
	ctx := context.Background()
	queue := s.Queues[len(s.Queues)-1]
	for s.rest(between(r, 3*time.Second, 10*time.Second)) {
		if err := s.q.Pause(ctx, queue); err != nil && !bearable(err) {
			return err
		}
		s.voice.say("paused %s", queue)
		s.rest(between(r, time.Second, 2*time.Second))
		if err := s.until(ctx, func() error { return s.q.Resume(ctx, queue) }); err != nil {
			return err
		}
	}
	return nil
}
