package gate_test

import (
	"math"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/errandq/errand/gate"
)

func TestDiskFree(t *testing.T) {
	dir := t.TempDir()
	if got := answer(t, must(gate.DiskFree(dir, 1, nil))); got != "open" {
		t.Error(got)
	}
	got := answer(t, must(gate.DiskFree(dir, math.MaxInt64, nil)))
	if !regexp.MustCompile(`^[1-9][0-9]* bytes are free in .*, less than 9223372036854775807$`).MatchString(got) {
		t.Error(got)
	}
	gone := filepath.Join(dir, "gone")
	got = answer(t, must(gate.DiskFree(gone, 1, nil)))
	if !regexp.MustCompile(`^free space of .*gone is not known: .+`).MatchString(got) {
		t.Error(got)
	}
	_, err := gate.DiskFree("", 0, &gate.CheckOptions{Timeout: -1})
	wantFaults(t, err, "path", "must not be empty", "min_bytes", "must be at least 1", "timeout", "must be")
}
