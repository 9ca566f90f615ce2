package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// meter measures what this process uses between start and stop.
type meter struct {
	profile *os.File // nil for none
	begun   time.Time
	cpu     time.Duration
	io      map[string]int64
}

// use is what a process has used.
type use struct {
	time, cpu time.Duration
	peak      int64 // of resident memory, in bytes
	written   int64 // bytes that were sent to the disk
	calls     int64 // system calls that read or write
}

// start forgets what was before. What the collector can give back, it gives
// back first, so that the peak is that of the measurement.
func (m *meter) start() error {
	debug.FreeOSMemory()
	// 5 resets the peak. Where that is not allowed, the peak is that of the
	// whole process.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	var err error
	if m.io, err = readIO(); err != nil {
		return err
	}
	if m.profile != nil {
		if err := pprof.StartCPUProfile(m.profile); err != nil {
			return err
		}
	}
	m.cpu = cpuTime()
	m.begun = time.Now()
	return nil
}

func (m *meter) stop() (u use, err error) {
	u.time, u.cpu = time.Since(m.begun), cpuTime()-m.cpu
	if m.profile != nil {
		pprof.StopCPUProfile()
		if err := m.profile.Close(); err != nil {
			return u, err
		}
		m.profile = nil
	}
	io, err := readIO()
	if err != nil {
		return u, err
	}
	u.written = io["write_bytes"] - m.io["write_bytes"]
	u.calls = io["syscr"] + io["syscw"] - m.io["syscr"] - m.io["syscw"]
	u.peak, err = peakMemory()
	return u, err
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // only for a wrong argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func readIO() (map[string]int64, error) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return nil, err
	}
	return parseProc(b)
}

func peakMemory() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("bench: no VmHWM in /proc/self/status")
}

// parseProc reads lines of the form "name: number".
func parseProc(b []byte) (map[string]int64, error) {
	m := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), ": ")
		if !ok {
			return nil, fmt.Errorf("bench: line %q: must be a name and a number", s.Text())
		}
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return nil, err
		}
		m[name] = n
	}
	return m, nil
}
