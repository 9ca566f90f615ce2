package metrics

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// state is what one look has found.
type state struct {
	clock   time.Time
	lanes   []errand.LaneTotals
	health  errand.Health
	workers []errand.WorkerInfo
	shown   bool // whether workers are known
	relayed relayed
	file    int64
	log     int64 // as file, -1 if not known
}

// read looks at a queue.
func read(ctx context.Context, q *errand.Queue, file string) (s *state, err error) {
	s = &state{file: -1, log: -1}
	told := make(chan errand.Health, 1)
	go func() { // beside the rest: it waits for its turn to write
		asking, stop := withTimeout(ctx, healthLimit)
		defer stop()
		told <- q.Health(asking, &errand.HealthOptions{MaxAge: -1}) // how long jobs are due is told itself
	}()
	relays := make(chan relayed, 1)
	go func() { // beside the rest too: there may be many devices
		asking, stop := withTimeout(ctx, healthLimit)
		defer stop()
		relays <- readRelayed(asking, q)
	}()
	s.lanes, err = q.Totals(ctx)
	s.health, s.relayed = <-told, <-relays
	if err != nil {
		return nil, err
	}
	switch s.workers, err = q.Workers(ctx); {
	case err == nil:
		s.shown = true
	case !errors.Is(err, errand.ErrUnsupportedDB):
		return nil, err
	}
	s.clock = q.Clock().Now
	if !s.health.Live {
		return nil, errand.ErrClosed
	}
	if file != "" {
		s.file, s.log = size(file), max(size(file+"-wal"), 0)
		if s.file < 0 {
			s.log = -1
		}
	}
	return s, nil
}

// size returns the size of a file, -1 if it cannot be found out.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// serves reports whether a worker takes jobs of a lane, as far as it is known.
func serves(w *errand.WorkerInfo, queue, kind string) bool {
	return w.Unknown || w.Serves(queue, kind)
}

// matches reports whether a name is that of a queue, or a prefix of it with "*" after it.
func matches(name, queue string) bool {
	prefix, ok := strings.CutSuffix(name, "*")
	return ok && strings.HasPrefix(queue, prefix) || name == queue
}

// codes are those of which the metric of the health has a sample, also if it is 0.
// HealthOverdue is left out: see errand_oldest_due_timestamp_seconds.
var codes = []errand.HealthCode{
	errand.HealthDamage, errand.HealthFull, errand.HealthWrite, errand.HealthSpace, errand.HealthClock,
	errand.HealthBrake, errand.HealthUnavailable, errand.HealthCap, errand.HealthLog, errand.HealthDead, errand.HealthDeadHead, errand.HealthSchedule,
}

// reasons counts the reasons of a code.
func (s *state) reasons(code errand.HealthCode) (n float64) {
	for i := range s.health.Reasons {
		if s.health.Reasons[i].Code == code {
			n++
		}
	}
	return n
}

// knows reports whether the health says if there are reasons of a code. Who does not write does
// not know of writes. A write that fails may have come too late for what is asked after it.
func (s *state) knows(code errand.HealthCode) bool {
	readOnly := s.reasons(errand.HealthReadOnly) > 0
	switch code {
	case errand.HealthWrite:
		return !readOnly
	case errand.HealthFull:
		return !readOnly && s.reasons(errand.HealthWrite) == 0
	case errand.HealthCap, errand.HealthDead, errand.HealthDeadHead, errand.HealthBrake, errand.HealthUnavailable, errand.HealthSchedule:
		return s.reasons(errand.HealthWrite) == 0
	}
	return true
}
