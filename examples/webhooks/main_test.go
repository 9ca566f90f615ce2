package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The program loses nothing, and a second run on the same file works too.
func TestProgram(t *testing.T) {
	db := filepath.Join(t.TempDir(), "shop.db")
	for range 2 {
		var out strings.Builder
		if err := run(t.Context(), &out, db, 30); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if want := "published 90 received 90 lost 0 duplicates 0 out-of-order 0"; lines[len(lines)-1] != want {
			t.Errorf("printed\n%s", out.String())
		}
	}
}
