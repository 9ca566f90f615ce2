package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestLedger_ClosesATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "received")
	if err := os.WriteFile(path, []byte("evt_1\nevt_2\nevt_"), 0o600); err != nil {
		t.Fatal(err)
	}
	record(t, path, "evt_3", "evt_1")

	got := balance([]OrderEvent{{ID: "evt_1"}, {ID: "evt_2"}, {ID: "evt_3"}, {ID: "evt_4"}}, ledgerAt(t, path))
	if want := (sheet{received: 3, lost: 1, duplicates: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLedger_NoFileMeansNothingReceived(t *testing.T) {
	if got := ledgerAt(t, filepath.Join(t.TempDir(), "received")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// What is appended must be in the file when Append returns, not later.
func TestLedger_IsWrittenWhenAppendReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "received")
	l, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			id := fmt.Sprintf("evt_%03d", i)
			if err := l.Append(id); err != nil {
				t.Error(err)
			}
			if n := ledgerAt(t, path)[id]; n != 1 {
				t.Errorf("%s is in the file %d times when Append returns", id, n)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLedger_FailsForGood(t *testing.T) {
	l, err := openLedger(filepath.Join(t.TempDir(), "received"))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.file.Close() // the disk goes away
	for range 2 {
		if err := l.Append("evt_1"); err == nil {
			t.Error("a record that could not be written was acknowledged")
		}
	}
	close(l.entries)
	<-l.ended
}

func record(t *testing.T, path string, ids ...string) {
	t.Helper()
	l, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := l.Append(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func ledgerAt(t *testing.T, path string) map[string]int {
	t.Helper()
	times, err := readLedger(path)
	if err != nil {
		t.Error(err)
	}
	return times
}
