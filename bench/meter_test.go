package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParseProc(t *testing.T) {
	m, err := parseProc([]byte("rchar: 12\nwrite_bytes: 4096\n"))
	if err != nil || len(m) != 2 || m["write_bytes"] != 4096 {
		t.Errorf("got %v, %v", m, err)
	}
	for _, bad := range []string{"rchar 12\n", "rchar: many\n"} {
		if _, err := parseProc([]byte(bad)); err == nil {
			t.Errorf("%q: want an error", bad)
		}
	}
}

func TestMeter(t *testing.T) {
	var m meter
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
	}
	u, err := m.stop()
	if err != nil {
		t.Fatal(err)
	}
	if u.written < 1<<20 || u.written > 2<<20 {
		t.Errorf("%d bytes written: want one MiB", u.written)
	}
	if u.time < 20*time.Millisecond || u.cpu <= 0 || u.peak < 1<<20 || u.calls < 1 {
		t.Errorf("got %+v", u)
	}
}
