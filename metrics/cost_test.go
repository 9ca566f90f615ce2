package metrics_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/metrics"
)

// A program that does not import the package does not contain it, nor what serves it.
func TestUnused(t *testing.T) {
	symbols := func(program string) string {
		file := filepath.Join(t.TempDir(), "program")
		if out, err := exec.Command("go", "build", "-o", file, "../examples/"+program).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command("go", "tool", "nm", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for program, want := range map[string]bool{"metrics": true, "quickstart": false} {
		all := symbols(program)
		for _, name := range []string{"errand/metrics.", "net/http."} {
			if strings.Contains(all, name) != want {
				t.Errorf("the symbols of %s contain %s: %t, want %t", program, name, !want, want)
			}
		}
		if strings.Contains(all, "opentelemetry") {
			t.Errorf("%s contains OpenTelemetry", program)
		}
	}
}

// BenchmarkWrite is to be compared with BenchmarkStats: the same file of 1,000 lanes.
func BenchmarkWrite(b *testing.B) {
	q, path := open(b)
	many(b, q, 1000)
	for b.Loop() {
		var text strings.Builder
		if err := metrics.Write(b.Context(), &text, q, &metrics.Options{File: path}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStats(b *testing.B) {
	q, _ := open(b)
	many(b, q, 1000)
	for b.Loop() {
		if _, err := q.Stats(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
