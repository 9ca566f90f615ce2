package dashboard_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program that does not import the package does not contain it, nor what it is made with: none
// of these is among the packages that it is linked of.
func TestUnused(t *testing.T) {
	for program, want := range map[string]bool{"dashboard": true, "quickstart": false} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../examples/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Fields(string(out))
		for _, name := range []string{"github.com/errandq/errand/dashboard", "html/template", "net/http"} {
			if slices.Contains(all, name) != want {
				t.Errorf("the packages of %s have %s: %t, want %t", program, name, !want, want)
			}
		}
	}
}
