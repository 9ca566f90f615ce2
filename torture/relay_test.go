//go:build unix

package torture_test

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var relayJobs = flag.Int("relay", 0, "run TestKill_Relay with so many jobs for each of 50 devices and 100 kills on each side; add -timeout 0")

// buildRelay builds the program of examples/relay, and returns its path.
func buildRelay(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../examples/relay").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// Devices and their server are killed again and again, over a network that loses, delays, doubles, reorders and
// truncates what they send. Each job that a device has acknowledged comes to the server once, and those
// of a group in order; at each kill of a device each of its jobs is on one of the two sides.
//
//errand:shows [relay] | | devices and their server are killed again and again, over a bad network
func TestKill_Relay(t *testing.T) {
	t.Parallel()
	devices, jobs, kills := 3, 300, 3
	switch {
	case *relayJobs > 0:
		devices, jobs, kills = 50, *relayJobs, 100
	case full():
		devices, jobs, kills = 20, 500, 20
	}
	cmd := exec.CommandContext(t.Context(), buildRelay(t), "-devices", fmt.Sprint(devices), "-jobs", fmt.Sprint(jobs), "-kills", fmt.Sprint(kills),
		"-seed", fmt.Sprint(dice(t).Uint64()), "-server", ramDir(t), "-devices-in", ramDir(t))
	cmd.WaitDelay = time.Minute // its programs end with it
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
