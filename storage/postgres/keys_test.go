package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// waits waits until a session waits for the lock of another.
func (d *db) waits() {
	d.t.Helper()
	for waits := false; !waits; {
		const text = `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`
		if err := d.conn.QueryRow(d.t.Context(), text).Scan(&waits); err != nil {
			d.t.Fatal(err)
		}
	}
}

// What a Store knows of its leases is bounded, also if nobody says that they have ended.
func TestBesides(t *testing.T) {
	var h postgres.Besides
	const n = 5 * postgres.BesidesLimit / 2
	for token := range int64(n) {
		h.Note(token, fmt.Sprint(token))
		if token%1000 == 0 {
			h.Forget(token)
		}
		if h.Len() > 2*postgres.BesidesLimit {
			t.Fatalf("%d leases are known", h.Len())
		}
	}
	for token := range int64(n) {
		key, ok := h.Key(token)
		if recent := token >= n-postgres.BesidesLimit; recent && token%1000 != 0 && !ok || ok && (key != fmt.Sprint(token) || token%1000 == 0) {
			t.Fatalf("lease %d: key %q, %v", token, key, ok)
		}
	}
	for token := range int64(n) {
		h.Forget(token)
	}
	if h.Len() > 0 {
		t.Errorf("%d leases are not forgotten", h.Len())
	}
}

// A job that ends while the time of its key is being forgotten leaves no key that nobody has.
func TestPurgeFinished_BesideAnEnd(t *testing.T) {
	d := newDB(t)
	s, purging := d.open(), d.openAs("purging")
	jobs := newJobs(1, "q", "k")
	jobs[0].Unique, jobs[0].UniqueFor = "u", time.Second
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
	if err != nil || len(res.Leased) != 1 {
		t.Fatalf("leased %v, %v", res.Leased, err)
	}
	// Whoever purges waits where it reads dead letters: after it has seen which jobs live.
	defer d.exec(`DROP VIEW errand_dead; DROP FUNCTION write_dead, read_dead; DROP TABLE pause; ALTER TABLE errand_dead_kept RENAME TO errand_dead`)
	d.exec(`ALTER TABLE errand_dead RENAME TO errand_dead_kept;
CREATE TABLE pause ();
CREATE FUNCTION read_dead() RETURNS SETOF errand_dead_kept LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('application_name') = 'purging' THEN LOCK TABLE pause IN ACCESS SHARE MODE; END IF;
  RETURN QUERY SELECT * FROM errand_dead_kept;
END $$;
CREATE VIEW errand_dead AS SELECT * FROM read_dead();
CREATE FUNCTION write_dead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER write INSTEAD OF INSERT OR UPDATE OR DELETE ON errand_dead FOR EACH ROW EXECUTE FUNCTION write_dead()`)
	d.exec("BEGIN")
	d.exec("LOCK TABLE pause IN ACCESS EXCLUSIVE MODE")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := purging.PurgeFinished(context.Background(), now.Add(2*time.Second)); err != nil {
			t.Error(err)
		}
	})
	d.waits()
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeDone}}}
		if _, err := s.Exchange(context.Background(), now, x); err != nil {
			t.Error(err)
		}
	})
	for over, wait := false, 0; !over && wait < 2; { // it waits too, or it does not need to
		if err := d.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&wait); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			over = true
		default:
		}
	}
	d.exec("ROLLBACK")
	wg.Wait()
	d.Invariants(t)
}

// A job behind the holder of its key has the role that it had once it is let in.
func TestExchange_HeirKeepsItsRole(t *testing.T) {
	for what, then := range map[string][]storage.NewJob{"not read": nil, "read for a job of Then": newJobs(1, "q", "k")} {
		d := newDB(t)
		s := d.open()
		jobs := newJobs(1, "q", "k")
		jobs[0].Unique = "u"
		if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
			t.Fatal(err)
		}
		res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne})
		if err != nil || len(res.Leased) != 1 {
			t.Fatalf("%s: leased %v, %v", what, res.Leased, err)
		}
		jobs[0].Conflict = &storage.Conflict{Mode: storage.Replace}
		out, err := s.Enqueue(t.Context(), now, jobs)
		if err != nil {
			t.Fatal(err)
		}
		d.exec("INSERT INTO errand_group VALUES ('q g')")
		d.exec("UPDATE errand_job SET group_key = 'q g', role = 2, attempt = 1 WHERE id = $1", out[0].ID.Key())
		for i := range then {
			then[i].Unique, then[i].Conflict = "u", &storage.Conflict{Mode: storage.After}
		}
		x := storage.Exchange{Finish: []storage.Finish{{Lease: res.Leased[0].Lease, Outcome: storage.OutcomeDone, Then: then}}}
		if _, err := s.Exchange(t.Context(), now, x); err != nil {
			t.Fatal(err)
		}
		var state int
		var role *int
		if err := d.conn.QueryRow(t.Context(), "SELECT state, role FROM errand_job WHERE id = $1", out[0].ID.Key()).Scan(&state, &role); err != nil {
			t.Fatal(err)
		}
		if state != 2 || role == nil || *role != 2 {
			t.Errorf("%s: the heir is in state %d, with role %v; want 2 and 2", what, state, role)
		}
		d.Invariants(t)
	}
}

// A key or a group that an open transaction has delays only the calls that name it.
func TestStore_HeldScopes(t *testing.T) {
	d := newDB(t)
	s := d.open()
	of := func(unique, group string) []storage.NewJob {
		all := newJobs(1, "q", "k")
		all[0].Unique, all[0].Group = unique, group
		return all
	}
	enqueue := func(jobs []storage.NewJob) storage.Enqueued {
		out, err := s.Enqueue(t.Context(), now, jobs)
		if err != nil || len(out) != 1 {
			t.Errorf("Enqueue of %+v returned %v, %v", jobs, out, err)
			return storage.Enqueued{}
		}
		return out[0]
	}
	first := enqueue(of("held", ""))
	callers := 8 + runtime.NumCPU() // more than the pool has connections
	many := func(i int) []storage.NewJob { return of(fmt.Sprint("many ", i), "") }
	same := func(jobs []storage.NewJob) func(int) []storage.NewJob {
		return func(int) []storage.NewJob { return jobs }
	}
	for _, c := range []struct {
		what, text string
		jobs       func(caller int) []storage.NewJob
		inserted   int
	}{
		{"a key that a job has", `SELECT FROM errand_unique WHERE key = 'held' FOR UPDATE`, same(of("held", "")), 0},
		{"a key that a transaction takes", `INSERT INTO errand_unique VALUES ('taken', 0, 1, 0, 0, 0)`, same(of("taken", "")), 1},
		{"a group", `INSERT INTO errand_group VALUES ('q busy')`, same(of("", "busy")), callers},
		{"many keys", fmt.Sprintf(`INSERT INTO errand_unique SELECT convert_to('many ' || i, 'UTF8'), 0, 1, 0, 0, 0 FROM generate_series(0, %d) i`, callers), many, callers},
	} {
		d.exec("BEGIN")
		d.exec(c.text)
		var inserted atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				if out := enqueue(c.jobs(i)); !out.Duplicate {
					inserted.Add(1)
				} else if c.inserted == 0 && out.ID != first.ID {
					t.Errorf("%s: a call that waited has the answer %+v", c.what, out)
				}
			})
		}
		for s.InLine() < callers && !t.Failed() {
			runtime.Gosched()
		}
		d.waits()
		others := [][]storage.NewJob{of("", ""), of("other "+c.what, ""), of("", "other"), of("another "+c.what, "another")}
		if c.what == "many keys" {
			others = others[:1] // a call about another key may wait for its turn
		}
		for _, jobs := range others {
			if out := enqueue(jobs); out.Duplicate {
				t.Errorf("%s: %+v was not inserted", c.what, jobs)
			}
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 9}}}
		for n := 1; n > 0; {
			res, err := s.Exchange(t.Context(), now, x)
			if err != nil {
				t.Fatal(err)
			}
			x.Finish, n = nil, len(res.Leased)
			for _, l := range res.Leased {
				if l.ID != first.ID {
					x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				}
			}
		}
		d.exec("ROLLBACK")
		wg.Wait()
		if n := int(inserted.Load()); n != c.inserted {
			t.Errorf("%s: of the calls that waited %d have inserted a job, want %d", c.what, n, c.inserted)
		}
	}
	d.Invariants(t)
}

// Calls that wait behind another one which names the same key end with their contexts, and after
// some time. The others go on.
func TestStore_HeldScopesEnds(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(1, "q", "k")
	jobs[0].Unique = "held"
	enqueue := func(ctx context.Context) (err error) {
		_, err = s.Enqueue(ctx, now, jobs)
		return err
	}
	d.exec("BEGIN")
	d.exec(`INSERT INTO errand_unique VALUES ('held', 0, 1, 0, 0, 0)`)
	var first, withdrawn error
	var wg sync.WaitGroup
	wg.Go(func() { first = enqueue(t.Context()) })
	d.waits()
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { withdrawn = enqueue(ctx) })
	for s.InLine() < 2 {
		runtime.Gosched()
	}
	cancel()
	for s.InLine() > 1 {
		runtime.Gosched()
	}
	s.SetLinePatience(time.Nanosecond)
	if err := enqueue(t.Context()); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("without patience Enqueue returned %v, want ErrBusy", err)
	}
	d.exec("ROLLBACK")
	wg.Wait()
	if first != nil || !errors.Is(withdrawn, context.Canceled) {
		t.Errorf("the calls returned %v and %v; want no error, and that of the context", first, withdrawn)
	}
	if n := s.InLine(); n != 0 {
		t.Errorf("%d calls are in line after all have ended", n)
	}
}

// Cancel of a job whose key is held waits in the same line.
func TestCancel_HeldScopes(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(1, "q", "k")
	jobs[0].Unique = "held"
	out, err := s.Enqueue(t.Context(), now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	d.exec("BEGIN")
	d.exec(`SELECT FROM errand_unique WHERE key = 'held' FOR UPDATE`)
	callers := 8 + runtime.NumCPU()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if _, err := s.Cancel(t.Context(), now, out[0].ID, storage.Retention{Default: time.Hour}); err != nil {
				t.Error(err)
			}
		})
	}
	for s.InLine() < callers && !t.Failed() {
		runtime.Gosched()
	}
	d.waits()
	if _, err := s.Enqueue(t.Context(), now, newJobs(1, "q", "k")); err != nil {
		t.Error(err)
	}
	d.exec("ROLLBACK")
	wg.Wait()
	if r, err := s.Job(t.Context(), out[0].ID); err != nil || r.State != storage.Cancelled {
		t.Errorf("the job is %s, %v; want cancelled", r.State, err)
	}
	d.Invariants(t)
}

// The end of the time of a key passes over one about which another transaction decides, and comes
// soon again.
func TestPurgeFinished_PassesOver(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(1, "q", "k")
	jobs[0].Unique, jobs[0].UniqueFor = "u", time.Second
	out, err := s.Enqueue(t.Context(), now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), now, out[0].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	later := now.Add(2 * time.Second)
	purge := func(over bool) {
		t.Helper()
		_, next, err := s.PurgeFinished(t.Context(), later)
		if err != nil || next.IsZero() != over || next.After(later) {
			t.Errorf("PurgeFinished returned %v, %v; want something to come: %t", next, err, !over)
		}
	}
	d.exec("BEGIN")
	d.exec("SELECT FROM errand_unique FOR UPDATE")
	purge(false)
	d.exec("ROLLBACK")
	purge(true)
	d.Invariants(t)
}

// Nothing is left of a key that a call has locked and not taken.
func TestEnqueue_KeyNotTaken(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := newJobs(2, "q", "k")
	jobs[1].Unique, jobs[1].Conflict = "u", &storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{Old: []byte("[1]")}}
	out, err := s.Enqueue(t.Context(), now, jobs)
	if err != nil || out[0].Duplicate || out[1].Unmerged == nil {
		t.Errorf("Enqueue returned %+v, %v; want a job, and one that is to be merged anew", out, err)
	}
	d.Invariants(t)
}
