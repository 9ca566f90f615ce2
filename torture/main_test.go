//go:build unix

package torture_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"modernc.org/sqlite"
)

const (
	partEnv    = "ERRAND_TORTURE_PART" // the part of a child
	tortureEnv = "ERRAND_TORTURE"      // 1: also what needs root
	seedEnv    = "ERRAND_TORTURE_SEED" // of everything random
)

// long makes the random tests go on.
var long = flag.Duration("long", 0, "go on with each random test for so long")

func TestMain(m *testing.M) {
	// What errand.Open does too late for tests that open the file before. An
	// error means that the system has no such locks.
	_, _ = sqlite.OFDLocking(true)
	if text := os.Getenv(partEnv); text != "" {
		var p part
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.play()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	if flag.Parse(); testing.Short() {
		return
	}
	if full() {
		if code, done := runInNamespace(); done {
			os.Exit(code)
		}
	}
	os.Exit(m.Run())
}

// full reports whether all tests are to run.
func full() bool { return os.Getenv(tortureEnv) == "1" }

// needsRoot skips a test that the machine of a newcomer need not be able to
// run. Asked for, it must run.
func needsRoot(t *testing.T, what string) {
	t.Helper()
	if !full() {
		t.Skipf("needs %s: set %s=1 and be root", what, tortureEnv)
	}
	if os.Geteuid() != 0 {
		t.Fatalf("%s=1 needs root, for %s", tortureEnv, what)
	}
}

// dice returns the random numbers of a test, which a second run can repeat. What
// the machine makes of the moments they choose differs all the same.
func dice(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		seed = n
	}
	t.Logf("%s=%d", seedEnv, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// between returns a random time.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// inBoth runs a test with each durability: what does not end the machine is to
// cost neither anything.
func inBoth(t *testing.T, f func(t *testing.T, relaxed bool)) {
	t.Parallel()
	for name, relaxed := range map[string]bool{"full": false, "relaxed": true} {
		t.Run(name, func(t *testing.T) { f(t, relaxed) })
	}
}

// rounds calls f a number of times: few in a plain run, all of them with
// ERRAND_TORTURE=1, and with -long as often as the time allows.
func rounds(t *testing.T, few, all int, f func(i int)) {
	t.Helper()
	n := few
	if full() {
		n = all
	}
	begin := time.Now()
	for i := 0; (i < n || time.Since(begin) < *long) && !t.Failed(); i++ {
		f(i)
	}
}
