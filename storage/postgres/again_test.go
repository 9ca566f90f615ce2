package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
	"github.com/errandq/errand/storage/storagetest"
)

// failsFirst has each session of the application "again" fail with the mark of every other
// transaction, as if by what runs beside it. That one has failed is noted by a lock of the
// session, which a rollback does not release.
const failsFirst = `CREATE OR REPLACE FUNCTION has_failed() RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid = 0 AND objid = 7) $$;
CREATE OR REPLACE FUNCTION fails_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.call % 8 <> 0 OR NEW.keys = '{}' OR current_setting('application_name') <> 'again' THEN RETURN NEW; END IF;
  IF has_failed() THEN
    PERFORM pg_advisory_unlock_shared(7);
    RETURN NEW;
  END IF;
  PERFORM pg_advisory_lock_shared(7);
  RAISE EXCEPTION 'the first run fails' USING ERRCODE = '40001';
END $$;
CREATE OR REPLACE TRIGGER fails_first BEFORE INSERT ON errand_call FOR EACH ROW EXECUTE FUNCTION fails_first()`

// waitsThen has the transaction that runs then wait, as it locks keys or groups, for the lock 8.
const waitsThen = `CREATE OR REPLACE FUNCTION waits_then() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF has_failed() THEN PERFORM pg_advisory_xact_lock_shared(8); END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER waits_then BEFORE INSERT ON errand_unique FOR EACH STATEMENT EXECUTE FUNCTION waits_then();
CREATE OR REPLACE TRIGGER waits_then BEFORE INSERT ON errand_group FOR EACH STATEMENT EXECUTE FUNCTION waits_then()`

// failing is a database in which transactions fail first, and then run again.
type failing struct{ *db }

func newFailing(t *testing.T) failing {
	d := failing{newDB(t)}
	t.Cleanup(func() { d.exec("DROP FUNCTION IF EXISTS fails_first, waits_then, has_failed CASCADE") })
	return d
}

func (d failing) Open() storage.Store { return d.openAgain() }

// openAgain opens a Store whose transactions fail first.
func (d failing) openAgain() *postgres.Store {
	d.t.Helper()
	s := d.openAs("again")
	d.exec(failsFirst)
	return s
}

// Of the first run of a transaction that fails at its end nothing is left in the next one.
func TestStore_OverlappingAgain(t *testing.T) {
	storagetest.RunOverlapping(t, func(t *testing.T) storagetest.DB { return newFailing(t) }, 5, storagetest.Without(lacking...))
}

// deciding is a database with a Store whose transactions fail first, and another Store.
type deciding struct {
	failing
	again, other *postgres.Store
}

// enqueue adds jobs of the Store other.
func (d deciding) enqueue(jobs []storage.NewJob) []storage.Enqueued {
	d.t.Helper()
	out, err := d.other.Enqueue(d.t.Context(), now, jobs)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// configure sets something for the groups of the queue.
func (d deciding) configure(name storage.Setting, value int64) {
	d.t.Helper()
	if err := d.other.Configure(d.t.Context(), storage.Lane{Queue: "q"}, storage.Settings{name: value}); err != nil {
		d.t.Fatal(err)
	}
}

// dies has the first ready job die.
func (d deciding) dies() {
	d.t.Helper()
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: wantOne}
	for range 2 {
		res, err := d.other.Exchange(d.t.Context(), now, x)
		if err != nil {
			d.t.Fatal(err)
		}
		x = storage.Exchange{}
		for _, l := range res.Leased {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
		}
	}
}

// between enqueues jobs by a transaction that fails, and runs again after a change.
func (d deciding) between(jobs []storage.NewJob, change func()) (out []storage.Enqueued, err error) {
	d.t.Helper()
	d.exec("SELECT pg_advisory_lock(8)")
	var wg sync.WaitGroup
	wg.Go(func() { out, err = d.again.Enqueue(d.t.Context(), now, jobs) })
	d.waits() // as it runs again
	change()
	d.exec("SELECT pg_advisory_unlock(8)")
	wg.Wait()
	return out, err
}

// has checks how many jobs are in a state.
func (d deciding) has(state storage.State, want int64) {
	d.t.Helper()
	all, err := d.other.Counts(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range all {
		if c.State == state {
			want -= c.N
		}
	}
	if want != 0 {
		d.t.Errorf("%d more jobs are to be %s: %v", want, state, all)
	}
}

// An Enqueue whose transaction runs again decides about what is there then.
func TestEnqueue_DecidesAgain(t *testing.T) {
	keyed := func(c storage.Conflict) []storage.NewJob {
		all := newJobs(1, "q", "k")
		all[0].Unique, all[0].Conflict = "u", &c
		return all
	}
	members := func(n int) []storage.NewJob {
		all := newJobs(n, "q", "k")
		for i := range all {
			all[i].Group = "g"
		}
		return all
	}
	for what, check := range map[string]func(t *testing.T, d deciding){
		"the job that it would put off is gone": func(t *testing.T, d deciding) {
			first := d.enqueue(keyed(storage.Conflict{Mode: storage.Replace}))[0].ID
			out, err := d.between(keyed(storage.Conflict{Mode: storage.Debounce, Quiet: time.Hour}), func() {
				if _, err := d.other.Cancel(t.Context(), now, first, storage.Retention{}); err != nil {
					t.Error(err)
				}
			})
			if err != nil || out[0].Duplicate {
				t.Errorf("the answer is %+v, %v; want a new job", out, err)
			}
			d.has(storage.Scheduled, 1)
		},
		"its key was taken": func(t *testing.T, d deciding) {
			var first storage.ID
			fails := keyed(storage.Conflict{Mode: storage.Fail})
			_, err := d.between(append(newJobs(1, "q", "k"), fails...), func() { first = d.enqueue(fails)[0].ID })
			if held, ok := errors.AsType[*storage.DuplicateError](err); !ok || held.ID != first || held.Index != 1 {
				t.Errorf("the error is %v, want one that names %v", err, first)
			}
			d.has(storage.Ready, 1)
		},
		"its group has another member": func(t *testing.T, d deciding) {
			duplicate := keyed(storage.Conflict{})
			d.enqueue(append(members(1), duplicate...))
			var other storage.ID
			out, err := d.between(append(duplicate, members(1)...), func() { other = d.enqueue(members(1))[0].ID })
			if err != nil || out[1].ID.Key() < other.Key() {
				t.Errorf("the answer is %v, %v; want a member behind %v", out, err, other)
			}
			d.has(storage.Blocked, 2)
		},
		"its group has fewer places": func(t *testing.T, d deciding) {
			d.enqueue(members(3))
			d.configure(storage.SettingGroupLimit, 2)
			if _, err := d.between(members(1), func() { d.configure(storage.SettingGroupLimit, 1) }); err != nil {
				t.Error(err)
			}
			d.has(storage.Blocked, 3)
		},
		"a dead member of its group blocks": func(t *testing.T, d deciding) {
			d.enqueue(members(2))
			d.dies()
			d.configure(storage.SettingDeadHead, int64(storage.PassDead))
			if _, err := d.between(members(1), func() { d.configure(storage.SettingDeadHead, int64(storage.BlockDead)) }); err != nil {
				t.Error(err)
			}
			d.has(storage.Blocked, 2)
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := deciding{failing: newFailing(t)}
			d.again, d.other = d.openAgain(), d.open()
			d.exec(waitsThen)
			d.enqueue(newJobs(1, "q", "k")) // so that the lane is known
			d.dies()
			check(t, d)
			d.Invariants(t)
		})
	}
}
