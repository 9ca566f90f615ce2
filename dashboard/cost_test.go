package dashboard_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that does not import the package does not contain it, nor what it is made with.
func TestUnused(t *testing.T) {
	for program, want := range map[string]bool{"dashboard": true, "quickstart": false} {
		file := filepath.Join(t.TempDir(), "program")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../examples/"+program).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), "go", "tool", "nm", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"errand/dashboard.", "html/template.", "net/http."} {
			if strings.Contains(string(out), name) != want {
				t.Errorf("the symbols of %s contain %s: %t, want %t", program, name, !want, want)
			}
		}
	}
}
