package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	tortureEnv = "ERRAND_TORTURE"     // 1: all seeds
	shardEnv   = "ERRAND_TORTURE_SIM" // first-last: the seeds of a child

	fewSeeds = 200
	allSeeds = 10_000
	// mostSteps is how long a history is at most.
	mostSteps = 18
)

var (
	oneSeed = flag.Uint64("seed", 0, "replay this seed and print its history")
	long    = flag.Duration("long", 0, "go on with new seeds for so long")
)

// Each test is done by one thread, see the package comment; what uses all cores
// is children with a part of the seeds each. They share nothing: the turnstile for
// suspects is one for a process, and would let the seeds meet.
//
//errand:shows [sim] | | 10,000 histories with kills, reboots, wrong clocks, full and failing stores, compared with a model; half of them Relaxed
func TestSimulation(t *testing.T) {
	switch shard := os.Getenv(shardEnv); {
	case shard != "":
		var first, last uint64
		if _, err := fmt.Sscanf(shard, "%d-%d", &first, &last); err != nil {
			t.Fatalf("%s=%q: %v", shardEnv, shard, err)
		}
		seeds(t, first, last)
	case *oneSeed != 0:
		one(t, *oneSeed, true)
	case *long > 0:
		for begin, first := time.Now(), uint64(time.Now().UnixNano())/1000; time.Since(begin) < *long && !t.Failed(); first += allSeeds {
			sharded(t, first, first+allSeeds-1)
		}
	case os.Getenv(tortureEnv) == "1":
		sharded(t, 1, allSeeds)
	default:
		seeds(t, 1, fewSeeds)
	}
}

func seeds(t *testing.T, first, last uint64) {
	for seed := first; seed <= last && !t.Failed(); seed++ {
		// A panic in a bubble ends the process: the name of the test then says
		// which seed it was.
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { one(t, seed, false) })
	}
}

// sharded has children run the seeds, as many at a time as there are cores.
func sharded(t *testing.T, first, last uint64) {
	begin := time.Now()
	n := uint64(runtime.GOMAXPROCS(0))
	t.Run("shards", func(t *testing.T) {
		size := (last - first + n) / n
		for from := first; from <= last; from += size {
			shard := fmt.Sprintf("%d-%d", from, min(from+size-1, last))
			t.Run(shard, func(t *testing.T) {
				t.Parallel()
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSimulation$", "-test.timeout=0")
				child.Env = append(os.Environ(), shardEnv+"="+shard)
				var out bytes.Buffer
				child.Stdout, child.Stderr = &out, &out
				if err := child.Run(); err != nil {
					t.Errorf("%v\n%s", err, out.String())
				}
			})
		}
	})
	took := time.Since(begin)
	t.Logf("%d seeds in %v, %.2f s for 1,000", last-first+1, took.Round(time.Millisecond),
		took.Seconds()/float64(last-first+1)*1000)
}

// one runs a seed. Of one that fails the shortest beginning is looked for that
// fails too.
func one(t *testing.T, seed uint64, show bool) {
	runtime.GOMAXPROCS(1)
	empty() // outside of the bubble
	r := run(t, seed, mostSteps)
	if show {
		t.Logf("history of seed %d:\n%s", seed, strings.Join(r.lines, "\n"))
	}
	if len(r.faults) == 0 {
		return
	}
	shortest := r
	for n := range r.steps {
		if s := run(t, seed, n); len(s.faults) > 0 {
			shortest = s
			break
		}
	}
	t.Errorf("seed %d:\n%s\nafter\n%s\nreplay: go test ./torture/sim -run Simulation -seed %d",
		seed, strings.Join(shortest.faults, "\n"), strings.Join(shortest.lines, "\n"), seed)
}

// result is what came of one history.
type result struct {
	lines  []string
	faults []string
	steps  int // from outside, without the end
}

// run runs the first steps of a seed.
func run(t *testing.T, seed uint64, most int) (r result) {
	t.Helper()
	dir, err := os.MkdirTemp(tmpfs(t), "errand-sim-") //nolint:usetesting // not on a disk, if that can be had
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Who waits for a mutex keeps the time of a bubble from passing.
	debug.SetTraceback("all")
	watchdog := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d hangs", seed)) })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, dir)
		w.play(most)
		r = result{w.lines, w.faults, w.steps}
	})
	return r
}

// tmpfs returns a folder in memory if there is one: no test here is about disks.
func tmpfs(t *testing.T) string {
	const shm = "/dev/shm"
	probe := filepath.Join(shm, fmt.Sprintf("errand-sim-probe-%d", os.Getpid()))
	if err := os.WriteFile(probe, nil, 0o600); err == nil {
		_ = os.Remove(probe)
		return shm
	}
	return t.TempDir()
}
