package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOrder(t *testing.T) {
	var all []pkg
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		all = append(all, pkg{path: name})
	}
	runs := order(all, 7)
	if again := order(all, 7); !slices.Equal(runs, again) {
		t.Error("another order with the same seed")
	}
	if other := order(all, 8); slices.Equal(runs, other) {
		t.Error("the same order with another seed")
	}
	built := 0
	seen := map[run]int{}
	for i, r := range runs {
		seen[r]++
		if i == 0 || runs[i-1].pkg != r.pkg || runs[i-1].race != r.race {
			built++
		}
	}
	for _, p := range all {
		for _, r := range []run{{p, 1, false, 3}, {p, 2, false, 3}, {p, 4, false, 3}, {p, 0, true, 1}} {
			if seen[r] != 1 {
				t.Errorf("%s: %d runs, want 1", r, seen[r])
			}
		}
	}
	if len(runs) != 4*len(all) || built > 2*len(all) {
		t.Errorf("%d runs and %d binaries of %d packages", len(runs), built, len(all))
	}
}

// A test that passes on several processors alone fails, once, and its output is kept.
func TestStress(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example\n\ngo 1.26\n",
		"fine/a_test.go": "package fine\n\nimport \"testing\"\n\nfunc TestFine(*testing.T) {}\n",
		"one/b_test.go": "package one\n\nimport (\n\t\"os\"\n\t\"runtime\"\n\t\"testing\"\n)\n\nfunc TestOne(t *testing.T) {\n" +
			"\tif runtime.GOMAXPROCS(0) == 1 {\n\t\tt.Error(\"one processor, beside\", os.Getenv(\"PATH\") != \"\")\n\t}\n}\n",
		"none/c.go": "package none\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := packages(t.Context(), dir)
	if err != nil || len(all) != 2 {
		t.Fatalf("packages: %v, %v; want two", all, err)
	}
	s := &stresser{seed: 1, folder: t.TempDir()}
	defer s.drop()
	for i, r := range order(all, 1) {
		if r.race {
			continue // it needs a C compiler
		}
		passes := r.path == "example/fine" || r.procs > 1
		if got := s.one(t.Context(), i, r); got != passes {
			t.Errorf("%s has passed: %t, want %t", r, got, passes)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(s.folder, "*.log"))
	if len(logs) != 1 {
		t.Fatalf("kept: %v, want the output of one run", logs)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil || strings.Count(string(text), "--- FAIL: TestOne") != 3 {
		t.Errorf("kept: %s, %v", text, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if !s.one(ended, 9, run{pkg: all[1], procs: 1, count: 1}) {
		t.Error("what the command did not run to its end has failed")
	}
}

// The test is also the program that burns, as os.Executable names it.
func TestMain(m *testing.M) {
	if os.Getenv(burnVariable) != "" {
		burn()
	}
	os.Exit(m.Run())
}
