package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// deviceProgram makes jobs up to a number, and sends them to the server. It ends when none is left, or when ctx
// does. Started again it goes on.
func deviceProgram(ctx context.Context, p places, name, url string, jobs int) (err error) {
	serverKey, err := os.ReadFile(p.deviceFile(name, "server-key"))
	if err != nil {
		return err
	}
	pass := errand.PassDead // a job that the server refuses does not keep back those behind it
	q, err := errand.Open(ctx, p.deviceFile(name, "db"), &errand.Options{
		Logger: logger(name),
		Queues: map[string]errand.QueueOptions{upQueue: {MaxDeaths: -1, Settings: errand.Settings{DeadHead: &pass}}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{upQueue}})
	err = relay.Forward(w, &relay.Options{
		Queue: upQueue, URL: url, Server: serverName, Device: name,
		Key: relay.KeyFile(p.deviceFile(name, "key")), ServerKey: strings.TrimSpace(string(serverKey)),
		Client: &http.Client{Timeout: 10 * time.Second}, // short, as the network is that of this machine
		Logger: logger(name),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(err)
		ended <- err
	}()
	err = makeJobs(ctx, q, p.deviceFile(name, "notes"), jobs)
	if err == nil {
		err = drained(ctx, q)
	}
	stop(nil)
	return errors.Join(ignore(err, context.Canceled), <-ended)
}

// makeJobs makes the jobs that are not noted yet. It notes a number before it enqueues the job, and never
// takes a number again, and notes the job after the queue has acknowledged it.
func makeJobs(ctx context.Context, q *errand.Queue, path string, jobs int) (err error) {
	first := 1
	err = eachNote(path, func(words []string) error {
		if words[0] != "try" {
			return nil
		}
		last, err := strconv.Atoi(words[2])
		first = last + 1
		return err
	})
	if err != nil {
		return err
	}
	n, err := openNotes(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	for first <= jobs {
		last := min(first+rand.IntN(50), jobs)
		if err := n.add(fmt.Sprintf("try %d %d", first, last)); err != nil {
			return err
		}
		var all []errand.NewJob
		for i := first; i <= last; i++ {
			all = append(all, newJob(i))
		}
		made, err := q.EnqueueMany(ctx, all)
		if err != nil {
			return err
		}
		var lines []string
		for i, e := range made {
			lines = append(lines, fmt.Sprintf("made %d %v", first+i, e.ID))
		}
		if err := n.add(lines...); err != nil {
			return err
		}
		first = last + 1
		if err := pause(ctx, time.Duration(rand.Int64N(int64(20*time.Millisecond)))); err != nil {
			return err
		}
	}
	return nil
}

// drained waits until no job waits or runs.
func drained(ctx context.Context, q *errand.Queue) error {
	for {
		n, err := live(ctx, q)
		if err != nil || n == 0 {
			return err
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// live returns how many jobs wait or run.
func live(ctx context.Context, q *errand.Queue) (n int64, err error) {
	counts, err := q.Counts(ctx)
	for _, c := range counts {
		switch c.State {
		case errand.Scheduled, errand.Ready, errand.Running, errand.Blocked:
			n += c.N
		}
	}
	return n, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ignore returns err unless it is that one.
func ignore(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return err
}
