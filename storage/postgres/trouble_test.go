package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// Of Enqueues that wait for each other each has its own end: one whose context has ended
// writes nothing, and the others go on.
func TestStore_EnqueueTogether(t *testing.T) {
	d := newDB(t)
	s := d.open()
	const n = 40
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%4 == 0 {
				go cancel()
			}
			defer cancel()
			out, err := s.Enqueue(ctx, now, newJobs(3, "q", "k"))
			switch {
			case errors.Is(err, context.Canceled) && i%4 == 0:
				refused.Add(1)
			case err != nil || len(out) != 3:
				t.Errorf("Enqueue returned %v, %v", out, err)
			case out[0].ID.Key() >= out[1].ID.Key() || out[1].ID.Key() >= out[2].ID.Key():
				t.Errorf("keys do not rise: %v", out)
			}
		})
	}
	wg.Wait()
	counts, err := s.Counts(t.Context())
	if want := 3 * (n - refused.Load()); err != nil || len(counts) != 1 || counts[0].N != want {
		t.Errorf("counts %v, %v; want %d", counts, err, want)
	}
}

func TestStore_SessionCutOff(t *testing.T) {
	d := newDB(t)
	s, other := d.open(), d.open()
	if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}})
	if err != nil || len(res.Leased) != 1 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	var mono time.Duration
	reclaim := func(s *postgres.Store, want int) {
		t.Helper()
		got, err := s.Reclaim(t.Context(), now, mono, time.Minute, 9)
		if err != nil || len(got) != want {
			t.Errorf("after %v Reclaim returned %v, %v; want %d", mono, got, err, want)
		}
	}
	// Others wait two seconds of their own, in which they look.
	wait := func(then int) {
		t.Helper()
		for range 7 {
			mono += 250 * time.Millisecond
			reclaim(other, 0)
		}
		mono += 250 * time.Millisecond
		reclaim(other, then)
	}
	cut := func() {
		t.Helper()
		d.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_locks JOIN errand_instance ON objid = instance AND name = $1
WHERE locktype = 'advisory' AND classid = (SELECT locks FROM errand_meta)::bigint AND granted`, postgres.Title(s))
	}
	reclaim(other, 0)
	for range 2 {
		cut()
		reclaim(other, 0)
		mono += 10 * time.Second // counts for half a second
		reclaim(other, 0)
		reclaim(s, 0) // finds out, and has a new session
		wait(0)
	}
	cut()
	reclaim(other, 0)
	wait(1)
}

// An instance that others took for gone, and have forgotten, leases nothing before it is
// registered anew.
func TestStore_Forgotten(t *testing.T) {
	d := newDB(t)
	s := d.open()
	lease := func(want int, wants ...storage.Want) {
		t.Helper()
		res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants})
		if err != nil || len(res.Leased) != want {
			t.Errorf("leased %v, %v; want %d", res.Leased, err, want)
		}
	}
	one, other := storage.Want{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}, storage.Want{Queues: []string{"r"}, Kinds: []string{"k"}, N: 1}
	lease(0, one)
	d.exec("DELETE FROM errand_instance")
	if _, err := s.Enqueue(t.Context(), now, newJobs(2, "q", "k")); err != nil {
		t.Fatal(err)
	}
	lease(0, one)
	lease(0, one, other)
	if got, err := s.Reclaim(t.Context(), now, 0, time.Minute, 9); err != nil || len(got) != 0 {
		t.Fatalf("Reclaim returned %v, %v", got, err)
	}
	lease(1, one)
	lease(1, one, other)
	d.Invariants(t)
}

func TestStore_Fold(t *testing.T) {
	d := newDB(t)
	s := d.open()
	const n = postgres.FoldAfter + 10
	for range n {
		if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
			t.Fatal(err)
		}
	}
	var rows int
	if err := d.conn.QueryRow(t.Context(), `SELECT count(*) FROM errand_delta`).Scan(&rows); err != nil || rows > 10 {
		t.Errorf("%d rows were not folded, %v; want at most 10", rows, err)
	}
	counts, err := s.Counts(t.Context())
	if want := (storage.Count{Queue: "q", Kind: "k", State: storage.Ready, N: n}); err != nil || len(counts) != 1 || counts[0] != want {
		t.Errorf("counts %v, %v; want %v", counts, err, want)
	}
	d.Invariants(t)
}

// No statement reads a table of jobs from its beginning to its end, nor into memory for a part of it,
// however few or many rows the server believes that there are.
func TestStatements_plans(t *testing.T) {
	d := planned(t)
	plan := d.planner("VERBOSE") // which shows what is chosen, too
	for _, text := range postgres.Prepared {
		if verb, _, _ := strings.Cut(text, " "); verb == "BEGIN" || verb == "COMMIT" || verb == "ROLLBACK" {
			continue
		}
		whole := plan(text)
		for _, table := range []string{"job", "finished", "dead", "history"} {
			if strings.Contains(whole, "Seq Scan on "+d.schema+".errand_"+table) {
				t.Errorf("%s:\n%s", text, whole)
			}
		}
		if strings.Contains(whole, "hashed SubPlan") && !strings.Contains(text, "(SELECT instance FROM errand_instance)") { // which has few rows
			t.Errorf("all rows of a table are read into memory: %s\n%s", text, whole)
		}
	}
}

var placeholder = regexp.MustCompile(`\$\d+`)

// planned is newDB for a test of plans: its tables are new, as those of another test may have statistics
// of rows that are gone.
func planned(t testing.TB) *db { return newDBIn(t, pgtest.NewSchema(t)) }

// planner returns what returns the plan of a statement, as the server makes it for the Store, with options of EXPLAIN.
func (d *db) planner(options string) func(text string) string {
	d.open()
	d.exec("SET plan_cache_mode = force_generic_plan")
	for name, value := range postgres.Planning {
		d.exec(fmt.Sprintf("SET %s = %s", name, value))
	}
	d.exec("ANALYZE errand_job") // of which there are none: a plan by statistics would read it all
	return func(text string) string {
		d.t.Helper()
		params := map[string]bool{}
		for _, p := range placeholder.FindAllString(text, -1) {
			params[p] = true
		}
		d.exec("PREPARE checked AS " + text)
		defer d.exec("DEALLOCATE checked")
		call := "EXPLAIN " + options + " EXECUTE checked"
		if len(params) > 0 {
			call += "(" + strings.Repeat(", NULL", len(params))[2:] + ")"
		}
		rows, err := d.conn.Query(context.Background(), call)
		if err != nil {
			d.t.Fatalf("%s: %v", text, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			d.t.Fatalf("%s: %v", text, err)
		}
		return strings.Join(lines, "\n")
	}
}
