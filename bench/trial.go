package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// spec says what a child process is to measure.
type spec struct {
	System   string  `json:"system"`
	Workload string  `json:"workload"`
	Round    int     `json:"round"`
	Scale    float64 `json:"scale"`
	Relaxed  bool    `json:"relaxed"`
	Place    place   `json:"place"`
	Dir      string  `json:"dir"` // its own, with nothing but the stock
	// Role is what the process is for, one of the roles.
	Role string `json:"role"`
	// Profile is the file for a CPU profile of what is measured; "" for none.
	Profile string `json:"profile"`
}

// The roles of child processes.
const (
	roleMeasure = ""
	roleStock   = "stock"  // makes the stock of a workload
	roleWorker  = "worker" // works on the file of a process that measures
)

// databaseName is the name of the file in the directory of a trial.
const databaseName = "jobs.db"

// trial is one measurement under way.
type trial struct {
	spec
	entry  entry
	meter  meter
	sample sample
	system system // nil if none is open
}

func newTrial(s spec) (*trial, workload, error) {
	e, err := findSystem(s.System)
	if err != nil {
		return nil, workload{}, err
	}
	w, err := findWorkload(s.Workload)
	return &trial{spec: s, entry: e, sample: sample{
		System: s.System, Workload: s.Workload, Round: s.Round, Figures: map[string]float64{},
	}}, w, err
}

// child is main of a child process: it does what the spec says, and writes what
// came of it.
func child(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	t, w, err := newTrial(s)
	if err != nil {
		return err
	}
	switch s.Role {
	case roleWorker:
		err = t.work(ctx, in, out)
	case roleStock:
		err = w.stock.make(ctx, t)
	default:
		err = t.measure(ctx, w)
	}
	err = errors.Join(err, t.close())
	if s.Role == roleWorker {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s, %s, round %d: %w", s.System, s.Workload, s.Round, err)
	}
	return json.NewEncoder(out).Encode(t.sample)
}

func (t *trial) measure(ctx context.Context, w workload) (err error) {
	if t.Profile != "" {
		if t.meter.profile, err = os.Create(t.Profile); err != nil {
			return err
		}
	}
	return w.run(ctx, t)
}

// n scales a number of jobs. What is not nothing stays at least one.
func (t *trial) n(full int) int {
	if full == 0 {
		return 0
	}
	return max(int(float64(full)*t.Scale), 1)
}

// scaled shortens a time; none is made longer.
func (t *trial) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(t.Scale, 1))
}

func (t *trial) path() string { return filepath.Join(t.Dir, databaseName) }

// open opens the trial's system and makes its file warm.
func (t *trial) open(ctx context.Context, s setup) (system, error) {
	s.path = t.path()
	q, err := t.openAt(ctx, s)
	if err == nil && !t.entry.server {
		err = warm(ctx, s.path)
	}
	return q, err
}

// openAt opens the trial's system, and notes its durability. It is closed when
// the trial is over, if not before.
func (t *trial) openAt(ctx context.Context, s setup) (system, error) {
	s.relaxed = t.Relaxed
	q, err := t.entry.open(ctx, s)
	if err != nil {
		return nil, err
	}
	t.system = q
	t.sample.Durability, err = q.Durability(ctx)
	return q, err
}

func (t *trial) close() error {
	q := t.system
	if q == nil {
		return nil
	}
	t.system = nil
	return q.Close()
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
	f[figCPUJob] = float64(u.cpu.Microseconds()) / float64(n)
	f[figCalls] = float64(u.calls)
	return nil
}

// only drops the figures that say nothing about this workload.
func (t *trial) only(keep ...string) {
	maps.DeleteFunc(t.sample.Figures, func(name string, _ float64) bool { return !slices.Contains(keep, name) })
}

func (t *trial) note(p50, p99 string, w waits) {
	t.sample.Figures[p50], t.sample.Figures[p99] = quantile(w, 0.5), quantile(w, 0.99)
}
