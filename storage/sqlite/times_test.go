package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What becomes of a time in the file if the clock that it was reckoned from is set back.
const (
	moved    = "moved"    // StepClock moves it
	dated    = "dated"    // a moment that the user gave, or a tick
	bounded  = "bounded"  // who reads it takes none that is too far ahead, and writes it anew
	leased   = "leased"   // only that it does not change counts
	identity = "identity" // part of an ID, or by it one is known from another
	history  = "history"  // it is only shown
	dropped  = "dropped"  // StepClock deletes what is later
)

// ruleOfTime says what becomes of each column with a time. due_at, until and their like are moved
// but for what the user gave, see [storage.Timekeeper].
var ruleOfTime = map[string]string{
	"errand_audit.at":             history,
	"errand_cause.first":          moved,
	"errand_bucket.full":          bounded, // storage.Bucket
	"errand_dead.created_at":      identity,
	"errand_dead.due_at":          history,
	"errand_dead.ended_at":        moved,
	"errand_entry.created_at":     identity,
	"errand_entry.updated_at":     moved, // from which documents count, in packages topic and webhook
	"errand_epoch.base":           moved,
	"errand_finished.created_at":  identity,
	"errand_finished.due_at":      history,
	"errand_finished.ended_at":    moved,
	"errand_finished.purge_at":    moved,
	"errand_history.at":           history,
	"errand_hold.let_at":          moved,
	"errand_hold.since":           moved,
	"errand_hold.until":           moved,
	"errand_instance.since":       history, // of the wall clock
	"errand_job.created_at":       identity,
	"errand_job.due_at":           moved,
	"errand_job.until":            leased,
	"errand_kept.at":              history,
	"errand_message.dedup_until":  moved,
	"errand_message.keep_until":   moved,
	"errand_message.published_at": moved,
	"errand_message.purge_at":     moved,
	"errand_migration.applied_at": history, // of the wall clock
	"errand_number.n":             moved,   // 5, and 18 and 20 of lanes
	"errand_option.deadline":      moved,
	"errand_option.since":         moved,
	"errand_option.start_by":      moved,
	"errand_sample.at":            dropped,
	"errand_schedule.last_tick":   history,
	"errand_schedule.next_tick":   dated, // the engine reckons it anew once the clock has gone back
	"errand_schedule.through":     dated, // the same
	"errand_tick.at":              history,
	"errand_tick.noted":           history,
	"errand_tick.until":           history,
	"errand_unique.created_at":    identity,
	"errand_unique.since":         moved,
	"errand_unique.until":         moved,
}

// noTimes are the columns of numbers that are no moments. Lengths are none.
var noTimes = strings.Fields(`attempt cancelling cause changed crashes delay done duration entry epoch fate finish_within flags generation
hanging hash id in_effect instance jitter job jobs lane lease live message n options paused policy priority probe refs resets retry retry_after revision
role salt schedule skip_overlap slot snoozes start_within state ticks timeout token total unique_scope value version`)

// Each column that may have a time has a rule. A new one has to be named here, and if it is
// reckoned from the queue's clock StepClock has to move it.
//
//errand:shows what is kept from a wrong clock | | a rule says of each time in the file what becomes of it
func TestClock_EachTimeHasARule(t *testing.T) {
	d := newDB(t, nil)
	d.open()
	raw := d.raw()
	defer raw.Close()
	for _, c := range numberColumns(t, raw) {
		_, name, _ := strings.Cut(c, ".")
		if ruleOfTime[c] == "" && !slices.Contains(noTimes, name) {
			t.Errorf("%s is a number, and nothing says whether it is a time, and what becomes of it if the clock is set back", c)
		}
	}
}

// numberColumns returns the columns of all tables that can have a time.
func numberColumns(t *testing.T, raw *sql.DB) (all []string) {
	t.Helper()
	rows, err := raw.Query(`SELECT m.name || '.' || c.name FROM sqlite_schema m, pragma_table_xinfo(m.name) c
WHERE m.type = 'table' AND m.name GLOB 'errand_*' AND c.type NOT IN ('TEXT', 'BLOB') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	if len(all) < 100 {
		t.Fatalf("only %d columns: %q", len(all), all)
	}
	return all
}

// What is moved is not ahead any more after a pass, wherever the clock has been.
func TestClock_MovesEachTime(t *testing.T) {
	for name, far := range map[string]time.Time{
		"70 years ahead": t0.AddDate(70, 0, 0), "beyond the year 9999": time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s, raw, ctx := d.open(), d.raw(), context.Background()
			defer raw.Close()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			job := func(kind string, change func(*storage.NewJob)) storage.NewJob {
				n := newJob("default", kind)
				change(&n)
				return n
			}
			_, err := s.Enqueue(ctx, far, []storage.NewJob{
				job("done", func(n *storage.NewJob) { n.Unique, n.UniqueFor = "k", time.Hour }), job("dead", func(*storage.NewJob) {}),
				job("wait", func(n *storage.NewJob) { n.Delay, n.StartWithin, n.FinishWithin = time.Hour, time.Hour, 2*time.Hour }),
				job("doubt", func(n *storage.NewJob) { n.Delay, n.StartWithin, n.Doubtful = time.Hour, time.Hour, true }),
				job("probe", func(*storage.NewJob) {}),
			})
			must(err)
			r, err := s.Exchange(ctx, far, storage.Exchange{LeaseDuration: time.Minute, Wants: want(2, "done", "dead")})
			must(err)
			var finish []storage.Finish
			for _, l := range r.Leased {
				f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
				if l.Kind == "dead" {
					f = storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Failure: &storage.NewFailure{Error: "no"}}
				}
				finish = append(finish, f)
			}
			_, err = s.Exchange(ctx, far, storage.Exchange{Finish: finish, Retention: storage.Retention{Default: time.Hour}})
			must(err)
			err = s.Hold(ctx, far, storage.Hold{Lane: storage.Lane{Queue: "default", Kind: "probe"}, Reason: "down", For: time.Second, Probe: true})
			must(err)
			_, err = s.Exchange(ctx, far.Add(2*time.Second), storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "probe")})
			must(err)
			_, err = s.PublishMessages(ctx, far, []storage.Publication{{
				Message: storage.Message{ID: "m", Topic: "t", KeepUntil: far.Add(time.Hour)}, Dedup: "d", DedupFor: time.Hour,
			}})
			must(err)
			_, err = s.PutEntries(ctx, far, []storage.Entry{{Class: "c", Name: "n"}})
			must(err)

			ahead := func() (columns []string) {
				t.Helper()
				for c, rule := range ruleOfTime {
					table, column, _ := strings.Cut(c, ".")
					query := fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s > ?1`, table, column)
					if c == "errand_job.due_at" {
						query += ` AND state <> 3` // of one that runs it is history
					}
					var n int
					if rule == moved {
						must(raw.QueryRow(query, t0.Add(3*time.Hour).UnixMicro()).Scan(&n))
					}
					if n > 0 {
						columns = append(columns, c)
					}
				}
				slices.Sort(columns)
				return columns
			}
			var all []string
			for c, rule := range ruleOfTime {
				if rule == moved && c != "errand_unique.since" { // which is set as it moves
					all = append(all, c)
				}
			}
			slices.Sort(all)
			if got := ahead(); !slices.Equal(got, all) {
				t.Errorf("ahead before the pass:\n%q, want\n%q", got, all)
			}
			next, err := s.StepClock(ctx, t0, 0)
			if err != nil || next != 0 {
				t.Fatal(next, err)
			}
			if got := ahead(); len(got) > 0 {
				t.Errorf("still ahead after the pass: %q", got)
			}
			if n, _, err := s.PurgeFinished(ctx, t0.Add(time.Hour)); n != 1 || err != nil {
				t.Errorf("%d are deleted after their time, %v", n, err)
			}
		})
	}
}
