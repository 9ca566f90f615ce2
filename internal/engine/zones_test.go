package engine_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// zoneFile is a database of time zones with one zone that has one offset.
func zoneFile(t *testing.T, offset time.Duration) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("TZif")
	b.Write(make([]byte, 16))
	for _, n := range []any{[]uint32{0, 0, 0, 0, 1, 4}, int32(offset / time.Second), []byte("\x00\x00TST\x00")} {
		if err := binary.Write(&b, binary.BigEndian, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("ZONEINFO"), "Moved"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

const zonesEnv = "ERRAND_TEST_ZONES"

// Two processes, whose databases of time zones have a zone otherwise, fire each tick once, also if
// one of them stops and comes back. This runs itself in another process, whose ZONEINFO is a
// folder: package time reads that variable once, and the folder each time.
func TestSchedule_TwoZoneDatabases(t *testing.T) {
	if os.Getenv(zonesEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSchedule_TwoZoneDatabases$", "-test.v")
		cmd.Env = append(os.Environ(), zonesEnv+"=1", "ZONEINFO="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestSchedule_TwoZoneDatabases/")) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for name, offsets := range map[string][2]time.Duration{
		"later":   {time.Hour, time.Hour + time.Minute},
		"earlier": {time.Hour + time.Minute, time.Hour},
		"by more": {time.Hour, 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				rec := r.record()
				zoneFile(t, offsets[0])
				// A tick each hour, which is known by its wall time.
				r.declare(storage.Schedule{Name: "news", Spec: "45 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *", Zone: "Moved"})
				r.store.alone = true // else it asks four times a second
				r.start()
				ticks := func(what string) {
					t.Helper()
					pass(3 * time.Hour)
					if runs := rec.take("news"); len(runs) != 3 {
						t.Errorf("%s: %d jobs of 3 ticks: %v", what, len(runs), runs)
					}
				}
				ticks("one process")
				other := r.another()
				other.cfg.Handlers, other.store.alone = r.cfg.Handlers, true
				zoneFile(t, offsets[1])
				other.start()
				ticks("both")
				ticks("both, later")
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				ticks("the other alone")
			})
		})
	}
}
