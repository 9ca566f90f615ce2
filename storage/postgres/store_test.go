package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
	"github.com/errandq/errand/storage/storagetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestStore_Conformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.DB { return newDB(t) })
}

// db is a schema under test. Instances of one process stand for several: each has
// sessions of its own.
type db struct {
	t      testing.TB
	schema string
}

func newDB(t testing.TB) *db {
	pgtest.Server(t)
	return &db{t, pgtest.Schema(t)}
}

func (d *db) open() *postgres.Store {
	d.t.Helper()
	s, err := postgres.Open(context.Background(), pgtest.Server(d.t), &postgres.Options{Schema: d.schema})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { d.kill(s) })
	return s
}

func (d *db) Open() storage.Store { return d.open() }

func (d *db) Kill(s storage.Store) { d.kill(s.(*postgres.Store)) }

// Reboot is a Kill: nothing of an instance is kept by its machine.
func (d *db) Reboot(s storage.Store) { d.Kill(s) }

func (d *db) kill(s *postgres.Store) {
	s.Kill()
	c := pgtest.Connect(d.t)
	defer c.Close(context.Background())
	if err := s.WaitGone(context.Background(), c); err != nil {
		d.t.Error(err)
	}
}

// rules are queries that find what must not be, each with what that is.
var rules = map[string]string{
	"a job in two tables": `SELECT id FROM (SELECT id FROM errand_job UNION ALL SELECT id FROM errand_finished UNION ALL SELECT id FROM errand_dead) j
GROUP BY id HAVING count(*) > 1`,
	"a number that is not the count": `SELECT coalesce(lane, 0) FROM
(SELECT lane, number, sum(n) AS n FROM (SELECT * FROM errand_number UNION ALL SELECT * FROM errand_delta) c GROUP BY lane, number HAVING sum(n) <> 0) kept
FULL JOIN (SELECT lane, state AS number, count(*) AS n FROM (
  SELECT lane, state FROM errand_job UNION ALL SELECT lane, state FROM errand_finished UNION ALL SELECT lane, 6 FROM errand_dead) j GROUP BY lane, state) is_now
USING (lane, number) WHERE kept.n IS DISTINCT FROM is_now.n`,
	"two leases with one token":       `SELECT token FROM errand_job WHERE state = 3 GROUP BY token HAVING count(*) > 1`,
	"a lease of nobody":               `SELECT id FROM errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`,
	"a job of no lane":                `SELECT id FROM errand_job WHERE lane NOT IN (SELECT lane FROM errand_lane)`,
	"a job that waits with a holder":  `SELECT id FROM errand_job WHERE state <> 3 AND (instance <> 0 OR cancelling)`,
	"a state that no live job has":    `SELECT id FROM errand_job WHERE state NOT IN (1, 2, 3)`,
	"a history of no job":             `SELECT job FROM errand_history WHERE job NOT IN (SELECT id FROM errand_job UNION SELECT id FROM errand_finished UNION SELECT id FROM errand_dead)`,
	"a history that its job lacks":    `SELECT id FROM errand_job WHERE NOT history AND id IN (SELECT job FROM errand_history)`,
	"a weight that is not the length": `SELECT id FROM errand_job WHERE weight <> length(args) + coalesce(length(headers), 0)`,
}

func (d *db) Invariants(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	c := pgtest.Connect(d.t)
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "SET search_path = "+d.schema); err != nil {
		t.Error(err)
	}
	for what, text := range rules {
		rows, err := c.Query(ctx, text)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for rows.Next() {
			v, _ := rows.Values()
			t.Errorf("%s: %v", what, v)
		}
		if rows.Err() != nil {
			t.Errorf("%s: %v", what, rows.Err())
		}
	}
}
