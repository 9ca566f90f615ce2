//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// findings are what a comparison of a ledger with a database has come to.
type findings struct {
	jobs       int      // acknowledged
	runs       int      // of handlers
	duplicates int      // of them, after a lost lease
	lost       []string // acknowledged, and not there
	unexpected []string // there, and never asked for
	broken     []string // rules of the database that do not hold
	unsure     int64    // how far totals may be off without being found wrong
}

func (f *findings) String() string {
	text := fmt.Sprintf("jobs %d runs %d lost %d unexpected %d duplicates %d broken %d unsure %d",
		f.jobs, f.runs, len(f.lost), len(f.unexpected), f.duplicates, len(f.broken), f.unsure)
	for name, all := range map[string][]string{"lost": f.lost, "unexpected": f.unexpected, "broken": f.broken} {
		for i, line := range all {
			if i == 20 {
				text += fmt.Sprintf("\n\tand %d more", len(all)-i)
				break
			}
			text += "\n\t" + name + ": " + line
		}
	}
	return text
}

func (f *findings) clean() bool { return len(f.lost)+len(f.unexpected)+len(f.broken) == 0 }

// mustBeClean fails the test unless nothing was lost or made up.
func (f *findings) mustBeClean(t *testing.T, after string, args ...any) {
	t.Helper()
	if !f.clean() {
		t.Errorf("%s: the database does not agree with what was acknowledged: %v", fmt.Sprintf(after, args...), f)
	}
}

// sqlTwice counts ticks that fired twice. A clock that was wrong may bring that
// about, but there is none here.
const sqlTwice = `SELECT COUNT(*) FROM (SELECT 1 FROM errand_tick WHERE taken = 'fired' GROUP BY schedule, at HAVING COUNT(*) > 1)`

// raw opens the file as any other program would.
func raw(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?mode=rw&_txlock=immediate&_pragma=busy_timeout(10000)")
}

// audit compares what processes have written to their pipes with the file.
func (l *ledger) audit(t *testing.T, path string) *findings {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f := &findings{jobs: len(l.ids) + len(l.ticks), unexpected: slices.Clone(l.fault)}
	rows, err := readRows(db)
	if err != nil {
		f.broken = append(f.broken, fmt.Sprint("reading all jobs: ", err))
		return f
	}
	broken, err := sqlite.CheckInvariants(context.Background(), db)
	if err != nil {
		f.broken = append(f.broken, fmt.Sprint("checking the rules: ", err))
	}
	for _, b := range broken {
		f.broken = append(f.broken, b.Text)
	}
	var twice int
	if err := db.QueryRow(sqlTwice).Scan(&twice); err != nil || twice != 0 {
		f.broken = append(f.broken, fmt.Sprintf("ticks that fired twice: %d, %v", twice, err))
	}
	var sound string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		f.broken = append(f.broken, fmt.Sprintf("integrity_check: %s, %v", sound, err))
	}
	ticks, err := readTicks(db)
	if err != nil {
		f.broken = append(f.broken, fmt.Sprint("reading all ticks: ", err))
	}
	if err := l.halves(f, db, rows); err != nil {
		f.broken = append(f.broken, fmt.Sprint("reading the application's table: ", err))
	}
	l.compare(f, rows, ticks)
	l.totals(t, f, path, rows, ticks)
	return f
}

// compare finds what differs between the ledger and the rows of the tables.
func (l *ledger) compare(f *findings, rows []row, ticks map[int64]bool) {
	byKey, byNumber := map[int64]*row{}, map[int]int64{}
	forgotten := len(ticks) >= storage.TickLimit // the oldest ticks
	for i := range rows {
		r := &rows[i]
		key := r.id.Key()
		byKey[key] = r
		if r.n == tickNumber {
			if !ticks[key] && !forgotten {
				f.unexpected = append(f.unexpected, fmt.Sprintf("job %d: of no tick", key))
			}
			delete(ticks, key)
			continue
		}
		if _, ok := l.tried[r.n]; !ok {
			f.unexpected = append(f.unexpected, fmt.Sprintf("job %d: nobody enqueued number %d", key, r.n))
		}
		if other, ok := byNumber[r.n]; ok {
			f.unexpected = append(f.unexpected, fmt.Sprintf("number %d is there twice, as jobs %d and %d", r.n, other, key))
		}
		byNumber[r.n] = key
	}
	for n, id := range l.ids {
		if r := byKey[id.Key()]; r != nil && (r.id != id || r.n != n) {
			f.lost = append(f.lost, fmt.Sprintf("number %d is job %v: in its place is %v with number %d", n, id, r.id, r.n))
		}
	}
	for key, r := range byKey {
		if err := l.entry(key).judge(r); err != nil {
			f.unexpected = append(f.unexpected, fmt.Sprintf("job %d, %s in state %d with token %d: %v", key, r.table, r.state, r.token, err))
		}
	}
	enqueued := map[int64]bool{}
	for _, id := range l.ids {
		enqueued[id.Key()] = true
	}
	for _, id := range l.ticks {
		enqueued[id.Key()] = true
		l.entry(id.Key())
	}
	for key := range ticks { // of which there is no job
		if !l.entry(key).gone(l.over) {
			f.broken = append(f.broken, fmt.Sprintf("job %d of a tick is in no table", key))
		}
	}
	for key, e := range l.jobs {
		r := byKey[key]
		if err := e.lacks(r, enqueued[key], l.over); err != nil {
			f.lost = append(f.lost, fmt.Sprintf("job %d: %v", key, err))
		}
		n, faults := e.duplicates()
		f.duplicates += n
		f.runs += len(e.runs)
		for _, text := range faults {
			f.unexpected = append(f.unexpected, fmt.Sprintf("job %d: %s", key, text))
		}
	}
}

// judge finds a reason why the row cannot have come about.
func (e *entry) judge(r *row) error {
	if r.table == "job" && r.state != running {
		return nil
	}
	s := e.leases[r.token]
	switch {
	case r.state == cancelled && e.cancels.begun > 0, r.table == "job":
		return nil
	case s == nil || len(s.intents) == 0:
		return errors.New("nobody ended it")
	case r.state == done && s.meant().outcome != storage.OutcomeDone,
		r.state == cancelled && s.meant().outcome != storage.OutcomeCancelled,
		r.state == dead && s.meant().outcome != storage.OutcomeDead:
		return fmt.Errorf("it was to end with outcome %d", s.meant().outcome)
	}
	return nil
}

// gone reports whether the job may be in no table, as it was to be deleted, or
// was kept as finished until a time that is over.
func (e *entry) gone(over int64) bool {
	if e.purges.begun > 0 || e.cancels.begun > 0 && e.until <= over {
		return true
	}
	for _, s := range e.leases {
		switch i := s.meant(); i.outcome {
		case 0, storage.OutcomeDead:
		case storage.OutcomeDone, storage.OutcomeCancelled:
			if i.until <= over {
				return true
			}
		default: // put back, unless it was asked to stop
			if e.cancels.begun > 0 && i.until <= over {
				return true
			}
		}
	}
	return false
}

// lacks finds what was acknowledged and is not so. r is nil if there is no row.
func (e *entry) lacks(r *row, enqueued bool, over int64) error {
	last := e.last()
	if r == nil {
		if !enqueued && last == nil && e.redrives.acked+e.cancels.acked == 0 || e.gone(over) {
			return nil
		}
		return fmt.Errorf("it is in no table; it was enqueued, ended %v, redriven %d times", last, e.redrives.acked)
	}
	if e.purges.acked > 0 {
		return errors.New("it was purged, and is back")
	}
	if e.cancels.acked > 0 && r.state != cancelled {
		return fmt.Errorf("it was cancelled, and is in state %d", r.state)
	}
	if r.state == dead {
		deaths := 0
		for _, s := range e.leases {
			if s.meant().outcome == storage.OutcomeDead {
				deaths++
			}
		}
		if deaths <= e.redrives.acked {
			return fmt.Errorf("it died %d times, was redriven %d times, and is dead", deaths, e.redrives.acked)
		}
	}
	if last == nil {
		return nil
	}
	return last.lacks(r, e)
}

// lacks finds out whether what a lease ended with is undone.
func (s *leaseEntry) lacks(r *row, e *entry) error {
	o := s.meant().outcome
	what := fmt.Sprintf("lease %d ended with outcome %d, and the job is in %s, state %d, token %d", s.token, o, r.table, r.state, r.token)
	if r.token < s.token {
		return errors.New(what)
	}
	after := r.token > s.token
	var ok bool
	switch o {
	case storage.OutcomeDone:
		ok = r.state == done && !after
	case storage.OutcomeCancelled:
		ok = r.state == cancelled && !after
	case storage.OutcomeDead:
		ok = r.state == dead && !after || e.redrives.begun > 0 && (after || r.state == ready || r.state == cancelled && e.cancels.begun > 0)
	default: // put back, or cancelled instead
		ok = after || r.state < running || r.state == cancelled && e.cancels.begun > 0
	}
	for _, token := range e.tokens() {
		if later := e.leases[token]; token > s.token && later.attempt > 0 && !putsBack(o) && (o != storage.OutcomeDead || e.redrives.begun == 0) {
			what += fmt.Sprintf(", and was leased again with token %d", token)
			ok = false
		}
	}
	if !ok {
		return errors.New(what)
	}
	return nil
}

// crashed lists the jobs whose crash count has ever been raised.
func (l *ledger) crashed() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		for _, s := range e.leases {
			if s.fate == storage.Crashed || s.meant().outcome == storage.OutcomeCrashed {
				out = append(out, fmt.Sprintf("job %d, token %d: fate %d, outcome %d", e.key, s.token, s.fate, s.meant().outcome))
			}
		}
	}
	return out
}

// ended returns how many jobs have had an acknowledged end of this kind.
func (l *ledger) ended(o storage.Outcome) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		for _, s := range e.leases {
			if s.acked && s.meant().outcome == o {
				n++
			}
		}
	}
	return n
}

// verbs says how often what was acknowledged.
func (l *ledger) verbs() string {
	names := map[storage.Outcome]string{
		storage.OutcomeDone: "done", storage.OutcomeCancelled: "cancelled", storage.OutcomeRetry: "retried", storage.OutcomeSnooze: "snoozed",
		storage.OutcomeCrashed: "crashed", storage.OutcomeInterrupted: "interrupted", storage.OutcomeReturned: "returned", storage.OutcomeDead: "dead",
	}
	var out []string
	for o := storage.OutcomeDone; o <= storage.OutcomeDead; o++ {
		if n := l.ended(o); n > 0 {
			out = append(out, fmt.Sprintf("%s %d", names[o], n))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	redriven, stopped := 0, 0
	for _, e := range l.jobs {
		redriven += e.redrives.acked
		stopped += e.cancels.acked
	}
	return fmt.Sprintf("enqueued %d, ticked %d, %s, redriven %d, cancelled while waiting %d",
		len(l.ids), len(l.ticks), strings.Join(out, ", "), redriven, stopped)
}

// reopen opens and closes the database as the next program would.
func reopen(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatalf("opening it again: %v", err)
	}
	if _, err := s.Counts(t.Context()); err != nil {
		t.Errorf("reading it again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
