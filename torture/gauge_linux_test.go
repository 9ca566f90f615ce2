package torture_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	gaugeWarm   = time.Minute      // after which nothing may grow any more
	gaugeWindow = 20 * time.Second // of medians: what a garbage collection does is no growth
	mostWAL     = 64 << 20
)

// reading is what a process and its database take at one time.
type reading struct {
	at         time.Duration // since the beginning
	rss, own   int64         // bytes of memory that the process has, and of them what is of no file
	goroutines int64
	db, wal    int64 // bytes of files
}

// gauge is what was measured, once a second.
type gauge struct {
	mu  sync.Mutex
	all []reading
}

// watch takes a reading whenever the process says how it is, until it says no
// more.
func (g *gauge) watch(c *child, db string, begin time.Time) error {
	var err error
	for line := range c.said {
		s := reading{at: time.Since(begin)}
		if _, e := fmt.Sscanf(line, "pulse %d", &s.goroutines); e != nil {
			continue // it says other things too
		}
		var e1, e2, e3 error
		s.rss, s.own, e1 = residentSize(c.cmd.Process.Pid)
		s.db, e2 = sizeOf(db)
		s.wal, e3 = sizeOf(db + "-wal")
		if err = cmp.Or(err, errors.Join(e1, e2, e3)); err != nil {
			continue // read on, so that the process can
		}
		g.mu.Lock()
		g.all = append(g.all, s)
		g.mu.Unlock()
	}
	return err
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// residentSize returns the memory of a process that is not swapped out, and what
// of it is no part of a file: the program itself is.
func residentSize(pid int) (all, own int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0, err
	}
	var size, resident, shared int64
	_, err = fmt.Sscan(string(b), &size, &resident, &shared)
	page := int64(os.Getpagesize())
	return resident * page, (resident - shared) * page, err
}

// during returns the readings of a time.
func (g *gauge) during(from, to time.Duration) (out []reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.all {
		if s.at >= from && s.at < to {
			out = append(out, s)
		}
	}
	return out
}

func rssOf(s reading) int64        { return s.rss }
func ownOf(s reading) int64        { return s.own }
func goroutinesOf(s reading) int64 { return s.goroutines }
func dbOf(s reading) int64         { return s.db }
func walOf(s reading) int64        { return s.wal }

func median(all []reading, of func(reading) int64) int64 {
	if len(all) == 0 {
		return 0
	}
	var v []int64
	for _, s := range all {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func most(all []reading, of func(reading) int64) (n int64) {
	for _, s := range all {
		n = max(n, of(s))
	}
	return n
}

// growth finds what has grown that must not, after a run of this length.
func (g *gauge) growth(length time.Duration) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if wal := most(g.during(0, length), walOf); wal > mostWAL {
		say("the log had %s: want at most %s", mib(wal), mib(mostWAL))
	}
	if length < gaugeWarm+2*gaugeWindow {
		return found
	}
	first, last := g.during(gaugeWarm, gaugeWarm+gaugeWindow), g.during(length-gaugeWindow, length)
	if len(first) < 5 || len(last) < 5 {
		say("%d readings after the first minute and %d at the end: want one a second", len(first), len(last))
		return found
	}
	if a, b := median(first, rssOf), median(last, rssOf); b > a+a/10 {
		say("memory has grown from %s to %s: want at most 10 %%", mib(a), mib(b))
	}
	if a, b := median(first, goroutinesOf), median(last, goroutinesOf); b > a+2 { // two more may be busy
		say("goroutines have become %d, from %d", b, a)
	}
	// What is there at a time is bounded, and does not reach that bound in each
	// minute.
	if a, b := median(first, dbOf), most(g.during(gaugeWarm, length), dbOf); b > 2*a+4<<20 {
		say("the database has grown from %s to %s", mib(a), mib(b))
	}
	return found
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// A run that stays as it is has nothing wrong with it, and each thing that
// grows is found.
func TestGauge_SeesGrowth(t *testing.T) {
	const length = 10 * time.Minute
	steady := reading{rss: 50 << 20, goroutines: 40, db: 4 << 20, wal: 16 << 20}
	for name, c := range map[string]struct {
		grow  func(s *reading, n int64) // n of 600
		finds string
	}{
		"nothing": {func(*reading, int64) {}, ""},
		"in the beginning": {func(s *reading, n int64) {
			s.rss += min(n, 60) << 20
			s.goroutines += min(n, 60)
			s.db += min(n, 60) << 20
		}, ""},
		"and shrinking": {func(s *reading, n int64) { s.rss += n % 10 << 20 }, ""},
		"memory":        {func(s *reading, n int64) { s.rss += n << 14 }, "memory has grown"},
		"goroutines":    {func(s *reading, n int64) { s.goroutines += n / 100 }, "goroutines have become"},
		"the database":  {func(s *reading, n int64) { s.db += n << 16 }, "the database has grown"},
		"the log, once": {func(s *reading, n int64) { s.wal += n / 599 << 26 }, "the log had"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gauge{}
			for n := range int64(length / time.Second) {
				s := steady
				s.at = time.Duration(n) * time.Second
				c.grow(&s, n)
				g.all = append(g.all, s)
			}
			found := strings.Join(g.growth(length), "; ")
			if !strings.HasPrefix(found, c.finds) || c.finds == "" && found != "" {
				t.Errorf("found %q, want %q", found, c.finds)
			}
		})
	}
	if found := (&gauge{}).growth(length); len(found) == 0 {
		t.Error("found nothing wrong with no readings")
	}
}
