package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRotated_everyoneIsFirstInTurn(t *testing.T) {
	all := systems[:3]
	var first []string
	for round := range 4 {
		got := rotated(all, round)
		if len(got) != 3 {
			t.Fatalf("round %d has %d systems", round, len(got))
		}
		first = append(first, got[0].name)
	}
	if got := strings.Join(first, " "); got != "errand raw backlite errand" {
		t.Errorf("first are %s", got)
	}
	if rotated(nil, 1) != nil {
		t.Error("none rotated is not none")
	}
}

func TestOptions_profileFor(t *testing.T) {
	drain, err := chosen("drain")
	if err != nil {
		t.Fatal(err)
	}
	one := options{profile: "cpu.prof", systems: systems[:1], workloads: drain[:1]}
	if got := one.profileFor(systems[0], drain[0], 0); got != "cpu.prof" {
		t.Errorf("one system at one workload: got %q", got)
	}
	if got := one.profileFor(systems[0], drain[0], 1); got != "" {
		t.Errorf("second round: got %q", got)
	}
	many := options{profile: "cpu.prof", systems: systems[:2], workloads: drain}
	if got := many.profileFor(systems[1], drain[0], 0); got != "cpu.raw.drain-20k.prof" {
		t.Errorf("many: got %q", got)
	}
	if got := (options{}).profileFor(systems[0], drain[0], 0); got != "" {
		t.Errorf("none asked for: got %q", got)
	}
}

func TestOnDisk(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skip("no /dev/shm")
	}
	if err := onDisk("/dev/shm"); !errors.Is(err, errNoDisk) {
		t.Errorf("got %v", err)
	}
}

func TestRun_writesProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.prof")
	var out strings.Builder
	err := run(t.Context(), []string{"-rounds", "1", "-scale", "0.01", "-dir", t.TempDir(), "-systems", "raw", "-workloads", "enqueue-1", "-cpuprofile", file}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v, %v", info, err)
	}
}
