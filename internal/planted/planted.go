// Package planted has faults in the source of a package, of which tests of the package have to
// find each.
package planted

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Find runs go test on the package of the working directory, with these flags and with a fault: the
// file, which says was once, says fault instead. Find fails t if no test fails, and returns what go
// test has printed.
func Find(t *testing.T, file, was, fault string, flags ...string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), was); n != 1 {
		t.Fatalf("%s says it %d times: must be once", file, n)
	}
	dir := t.TempDir()
	bad, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	doc, err := json.Marshal(map[string]map[string]string{"Replace": {path: bad}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{bad: strings.Replace(string(source), was, fault, 1), overlay: string(doc)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"test", "-vet=off", "-overlay", overlay}, flags...)...).CombinedOutput()
	switch {
	case err == nil:
		t.Error("no test finds it")
	case !strings.Contains(string(out), "--- FAIL"):
		t.Errorf("it does not build: %s", out)
	}
	return string(out)
}
