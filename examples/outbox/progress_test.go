package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	steps := []struct {
		after time.Duration
		t     tally
	}{
		{0, tally{0, 4, 0}},
		{10 * time.Millisecond, tally{1, 3, 0}},
		{1100 * time.Millisecond, tally{1, 2, 1}},
		{1200 * time.Millisecond, tally{3, 0, 1}},
		{1300 * time.Millisecond, tally{3, 0, 1}},
	}
	plain := "0 of 4 delivered, 4 waiting, 0 dead\n" +
		"1 of 4 delivered, 2 waiting, 1 dead\n" +
		"3 of 4 delivered, 0 waiting, 1 dead\n"
	bar := "\r\x1b[K[                                        ] 0 of 4 delivered, 4 waiting, 0 dead" +
		"\r\x1b[K[==========                              ] 1 of 4 delivered, 3 waiting, 0 dead" +
		"\r\x1b[K[==========xxxxxxxxxx                    ] 1 of 4 delivered, 2 waiting, 1 dead" +
		"\r\x1b[K[==============================xxxxxxxxxx] 3 of 4 delivered, 0 waiting, 1 dead\n"
	for want, onTerminal := range map[string]bool{plain: false, bar: true} {
		path := filepath.Join(t.TempDir(), "out")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		p := newProgress(out)
		if p.bar {
			t.Error("a file is no terminal")
		}
		p.bar = onTerminal
		for _, s := range steps {
			p.show(s.t, begin.Add(s.after))
		}
		p.end()
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("terminal %v: got %q, %v, want %q", onTerminal, got, err, want)
		}
	}
}
