//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["compacter"] = compacter }

// mess leaves free pages behind.
var mess = []string{
	`CREATE TABLE IF NOT EXISTS mess (b BLOB)`, `INSERT INTO mess VALUES (zeroblob(100000))`, `DELETE FROM mess`,
}

// compacter is a program that makes the file larger and smaller, again and again.
func compacter(p part, v *voice) error {
	opts := &errand.Options{Logger: slog.New(slog.DiscardHandler)}
	if p.Relaxed {
		opts.SQLite.Durability = errand.Relaxed
	}
	q, err := errand.Open(context.Background(), p.DB, opts)
	if err != nil {
		return err
	}
	for {
		err := q.Tx(context.Background(), func(tx *sql.Tx) error {
			for _, text := range mess {
				if _, err := tx.Exec(text); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		v.say("compacting")
		freed, err := q.Compact(context.Background())
		if err != nil {
			return err
		}
		v.say("compacted %d", freed)
	}
}

// A process that compacts the file is killed at any moment, while others go on writing:
// what these were told is there, and the file is as it was, or smaller.
//
//errand:shows a file that has become large | | a process that is killed while it compacts leaves the file whole, with all that was acknowledged
func TestKill_Compact(t *testing.T) { inBoth(t, killCompact) }

func killCompact(t *testing.T, relaxed bool) {
	t.Parallel()
	random, l, path := dice(t), newLedger(), filepath.Join(ramDir(t), "jobs.db")
	// Jobs that stay, so that a compaction takes a while.
	start(t, l, part{Role: "mix", DB: path, First: 1_000_000, Jobs: 1500, Senders: 8, Size: 8000, Seed: random.Uint64(), Queues: []string{"ballast"}, Relaxed: true}).finish(time.Minute)
	busy := start(t, l, part{
		Role: "mix", DB: path, First: 2_000_000, Jobs: -1, Senders: 1, Workers: 2, Seed: random.Uint64(), Pause: 2 * time.Millisecond,
		Size: 5000, Keep: time.Millisecond, Queues: []string{"default"}, Relaxed: relaxed,
	})
	busy.hears("ready")
	begun, ended, within, freed := 0, 0, 0, 0
	rounds(t, 5, 60, func(int) {
		c := start(t, l, part{Role: "compacter", DB: path, Relaxed: relaxed})
		c.hears("compacting")
		<-time.After(between(random, 0, 200*time.Millisecond))
		c.kill()
		mid := true // in a compaction
		begun++
		for line := range c.said {
			var n int
			if _, err := fmt.Sscanf(line, "compacted %d", &n); err == nil {
				ended, freed, mid = ended+1, freed+n, false
			} else if line == "compacting" {
				begun, mid = begun+1, true
			}
		}
		if mid {
			within++
		}
	})
	last := start(t, l, part{Role: "compacter", DB: path, Relaxed: relaxed})
	if text := last.hears("compacted"); text == "0" {
		t.Error("the last compaction gave nothing back")
	}
	last.kill()
	busy.kill()
	l.audit(t, path).mustBeClean(t, "%d compactions, of which %d were killed", begun, within)
	start(t, l, part{Role: "mix", DB: path, Workers: 8, Finish: true, Queues: []string{"default", "ballast"}}).finish(time.Minute)
	f := l.audit(t, path)
	f.mustBeClean(t, "%d compactions, of which %d were killed, and all finished", begun, within)
	if within == 0 || f.runs == 0 {
		t.Errorf("of %d compactions %d were killed, beside %d runs", begun, within, f.runs)
	}
	t.Logf("%d compactions, of which %d have ended, with %d bytes less, and %d were killed: %v; %s", begun, ended, freed, within, f, l.verbs())
}
