package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
)

// spec says what a child process is to measure.
type spec struct {
	System   string  `json:"system"`
	Workload string  `json:"workload"`
	Round    int     `json:"round"`
	Scale    float64 `json:"scale"`
	Dir      string  `json:"dir"` // its own, empty
	// Profile is the file for a CPU profile of what is measured; "" for none.
	Profile string `json:"profile"`
}

// trial is one measurement under way.
type trial struct {
	spec
	entry  entry
	meter  meter
	sample sample
}

// measure runs one trial in this process.
func measure(ctx context.Context, s spec) (sample, error) {
	e, err := findSystem(s.System)
	if err != nil {
		return sample{}, err
	}
	w, err := findWorkload(s.Workload)
	if err != nil {
		return sample{}, err
	}
	t := &trial{spec: s, entry: e, sample: sample{
		System: s.System, Workload: s.Workload, Round: s.Round, Figures: map[string]float64{},
	}}
	if s.Profile != "" {
		if t.meter.profile, err = os.Create(s.Profile); err != nil {
			return sample{}, err
		}
	}
	if err := w.run(ctx, t); err != nil {
		return sample{}, fmt.Errorf("%s, %s, round %d: %w", s.System, s.Workload, s.Round, err)
	}
	return t.sample, nil
}

// child is main of a child process: it reads a spec and writes a sample.
func child(ctx context.Context, in string, out io.Writer) error {
	var s spec
	if err := json.Unmarshal([]byte(in), &s); err != nil {
		return err
	}
	got, err := measure(ctx, s)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(got)
}

// n scales a number of jobs.
func (t *trial) n(full int) int { return max(int(float64(full)*t.Scale), 1) }

func (t *trial) path() string { return filepath.Join(t.Dir, "jobs.db") }

// open opens the trial's system on a new file that is warm.
func (t *trial) open(ctx context.Context, s setup) (system, error) {
	s.path = t.path()
	q, err := t.openAt(ctx, s)
	if err == nil {
		err = warm(ctx, s.path)
	}
	return q, err
}

// openAt opens the trial's system, and notes its durability.
func (t *trial) openAt(ctx context.Context, s setup) (system, error) {
	q, err := t.entry.open(ctx, s)
	if err != nil {
		return nil, err
	}
	t.sample.Durability, err = q.Durability(ctx)
	return q, err
}

func (t *trial) start() error { return t.meter.start() }

// stop ends what is measured, which was about n jobs.
func (t *trial) stop(n int) error {
	u, err := t.meter.stop()
	if err != nil {
		return err
	}
	t.sample.Jobs, t.sample.Seconds = n, u.time.Seconds()
	f := t.sample.Figures
	f[figRate] = float64(n) / u.time.Seconds()
	f[figPeak] = float64(u.peak) / (1 << 20)
	f[figWritten] = float64(u.written) / float64(n)
	f[figBytes] = float64(u.written)
	f[figCPU] = 100 * u.cpu.Seconds() / u.time.Seconds()
	f[figCalls] = float64(u.calls)
	return nil
}

func (t *trial) note(p50, p99 string, w waits) {
	t.sample.Figures[p50], t.sample.Figures[p99] = quantile(w, 0.5), quantile(w, 0.99)
}

// fill enqueues n jobs before anything is measured.
func fill(ctx context.Context, s system, n int, pad string) error {
	for from := 0; from < n; from += 5000 {
		if err := s.EnqueueMany(ctx, jobs(from, min(5000, n-from), pad)); err != nil {
			return err
		}
	}
	return nil
}

// workers is how many handlers run at a time.
const workers = 16

var errFails = errors.New("this attempt is to fail")

// drainAll works until n different jobs have succeeded, each after it has
// failed fails times, and fails if any is lost.
func drainAll(ctx context.Context, s system, n, fails int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := newSet(n)
	err := s.Work(ctx, workers, func(_ context.Context, j *job) error {
		if j.Attempt <= fails {
			return errFails
		}
		if seen.add(j) == n {
			stop()
		}
		return nil
	})
	if err != nil {
		return err
	}
	left, err := s.Left(context.WithoutCancel(ctx))
	if err == nil && left != 0 {
		err = fmt.Errorf("%d jobs are left", left)
	}
	return errors.Join(err, seen.err())
}

// set counts the different jobs that were done.
type set struct {
	done  []atomic.Bool
	n     atomic.Int64
	again atomic.Int64
	alien atomic.Int64
}

func newSet(n int) *set { return &set{done: make([]atomic.Bool, n)} }

// add gives how many different jobs were done. Jobs that were not decoded are
// only counted.
func (s *set) add(j *job) int {
	if j.Raw == nil {
		if j.N < 0 || j.N >= len(s.done) {
			s.alien.Add(1)
			return 0
		}
		if s.done[j.N].Swap(true) {
			s.again.Add(1)
			return 0
		}
	}
	return int(s.n.Add(1))
}

func (s *set) err() error {
	if n := int(s.n.Load()); n != len(s.done) || s.again.Load() != 0 || s.alien.Load() != 0 {
		return fmt.Errorf("%d of %d jobs were done, %d again, %d unknown", n, len(s.done), s.again.Load(), s.alien.Load())
	}
	return nil
}
