package postgres_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/internal/pgtest"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
	"github.com/errandq/errand/storage/storagetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestStore_Conformance(t *testing.T) {
	pgtest.Server(t) // without one, what the Store lacks is not known
	storagetest.Run(t, func(t *testing.T) storagetest.DB { return newDB(t) }, storagetest.Lacking(lacks...))
}

// lacks are the interfaces that the Store does not have yet.
var lacks = []string{
	"storage.Compacter", "storage.Handoff", "storage.Marker", "storage.Peers", "storage.Promoter", "storage.Publisher",
	"storage.Pulser", "storage.Scheduler", "storage.Timekeeper", "storage.Topics", "storage.Troubled", "storage.TxEnqueuer", "storage.Versioner", "storage.Historian", "storage.Auditor",
}

// db is a schema under test. Instances of one process stand for several: each has
// sessions of its own.
type db struct {
	t      testing.TB
	schema string
	conn   *pgx.Conn // of somebody who knows nothing of errand
	stores map[*postgres.Store]*losing
	ahead  time.Duration
}

func newDB(t testing.TB) *db { return newDBIn(t, pgtest.Schema(t)) }

// newDBIn is newDB for a schema that the test may change.
func newDBIn(t testing.TB, schema string) *db {
	d := &db{t: t, schema: schema, conn: pgtest.Connect(t), stores: map[*postgres.Store]*losing{}}
	d.exec("SET search_path = " + d.schema)
	t.Cleanup(func() { d.conn.Close(context.Background()) })
	return d
}

// exec runs SQL on a connection that errand knows nothing of.
func (d *db) exec(text string, args ...any) {
	d.t.Helper()
	if _, err := d.conn.Exec(context.Background(), text, args...); err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
}

func (d *db) open() *postgres.Store { return d.openAs("errand") }

// openAs is open with a name of the application.
func (d *db) openAs(application string) *postgres.Store {
	d.t.Helper()
	l := &losing{}
	s, err := postgres.OpenBy(context.Background(), pgtest.Server(d.t)+" application_name="+application, &postgres.Options{Schema: d.schema}, l.wrap)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { d.kill(s) })
	d.stores[s] = l
	s.SetAhead(d.ahead)
	return s
}

func (d *db) Open() storage.Store { return d.open() }

func (d *db) Kill(s storage.Store) { d.kill(s.(*postgres.Store)) }

// Reboot is a Kill: nothing of an instance is kept by its machine.
func (d *db) Reboot(s storage.Store) { d.Kill(s) }

// SetAhead has the Stores hear of a clock that is ahead of the server's.
func (d *db) SetAhead(by time.Duration) {
	d.ahead = by
	for s := range d.stores {
		s.SetAhead(by)
	}
}

func (d *db) kill(s *postgres.Store) {
	s.Kill()
	if err := s.WaitGone(context.Background(), d.conn); err != nil {
		d.t.Error(err)
	}
}

// faults are queries that find what must not be, each with what that is.
var faults = map[string]string{
	"a job in two tables": `SELECT id FROM (SELECT id FROM errand_job UNION ALL SELECT id FROM errand_finished UNION ALL SELECT id FROM errand_dead) j
GROUP BY id HAVING count(*) > 1`,
	"a number that is not the count": `SELECT coalesce(lane, 0) FROM
(SELECT lane, v.number, sum(v.n) AS n FROM (SELECT lane, number, n, bytes FROM errand_number UNION ALL SELECT lane, number, n, bytes FROM errand_delta) c,
  LATERAL (VALUES (c.number / 32, -c.n), (c.number % 32, c.n)) v(number, n) WHERE c.number > 0 AND v.number BETWEEN 1 AND 15 GROUP BY lane, v.number HAVING sum(v.n) <> 0) kept
FULL JOIN (SELECT lane, state AS number, count(*) AS n FROM (
  SELECT lane, state FROM errand_job UNION ALL SELECT lane, state FROM errand_finished UNION ALL SELECT lane, 6 FROM errand_dead) j GROUP BY lane, state) is_now
USING (lane, number) WHERE kept.n IS DISTINCT FROM is_now.n`,
	"bytes that are not the weight": `SELECT coalesce(lane, 0) FROM
(SELECT lane, sum(bytes) AS n FROM (SELECT lane, number, n, bytes FROM errand_number UNION ALL SELECT lane, number, n, bytes FROM errand_delta) c GROUP BY lane HAVING sum(bytes) <> 0) kept
FULL JOIN (SELECT lane, sum(weight) AS n FROM errand_job GROUP BY lane HAVING sum(weight) <> 0) is_now USING (lane) WHERE kept.n IS DISTINCT FROM is_now.n`,
	"a cause that is not of its dead letters": `SELECT coalesce(cause, 0) FROM (SELECT cause, lane, n + coalesce((SELECT sum(n) FROM errand_delta WHERE number = -4 AND job = cause), 0) AS n FROM errand_cause) c
FULL JOIN (SELECT cause, lane, count(*) AS n FROM errand_dead GROUP BY cause, lane) d USING (cause, lane) WHERE c.n IS DISTINCT FROM d.n`,
	"two leases with one token":      `SELECT token FROM errand_job WHERE state = 3 GROUP BY token HAVING count(*) > 1`,
	"a lease of nobody":              `SELECT id FROM errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`,
	"a job of no lane":               `SELECT id FROM errand_job WHERE lane NOT IN (SELECT lane FROM errand_lane)`,
	"a job that waits with a holder": `SELECT id FROM errand_job WHERE state <> 3 AND (instance <> 0 OR cancelling OR started_at IS NOT NULL OR doubt > 1)`,
	"a state that no live job has":   `SELECT id FROM errand_job WHERE state NOT IN (1, 2, 3, 7)`,
	"a history of no job":            `SELECT job FROM errand_history WHERE job NOT IN (SELECT id FROM errand_job UNION SELECT id FROM errand_finished UNION SELECT id FROM errand_dead)`,
	"a history that its job lacks":   `SELECT id FROM errand_job WHERE NOT history AND id IN (SELECT job FROM errand_history)`,
	"a key of no job":                `SELECT job FROM errand_unique WHERE job = 0 OR until = 0 AND job NOT IN (SELECT id FROM errand_job)`,
	"a key that its job lacks":       `SELECT job FROM errand_unique u JOIN errand_job j ON j.id = u.job WHERE j.unique_key IS DISTINCT FROM u.key`,
	"a live job without its key":     `SELECT id FROM errand_job j WHERE unique_key IS NOT NULL AND NOT EXISTS (SELECT FROM errand_unique u WHERE u.key = j.unique_key AND u.job = j.id)`,
	"a key behind nobody":            `SELECT job FROM errand_unique f WHERE slot = 1 AND NOT EXISTS (SELECT FROM errand_unique u JOIN errand_job j ON j.id = u.job WHERE u.key = f.key AND u.slot = 0)`,
	"a member that waits for nobody": `SELECT id FROM errand_job WHERE state = 7 AND coalesce(role, 0) <> 1 AND id NOT IN (SELECT job FROM errand_unique WHERE slot = 1)`,
	"a role that its state lacks":    `SELECT id FROM errand_job WHERE role = 1 AND state <> 7 OR role = 2 AND state = 7 OR role = 0 AND state IN (2, 3) OR group_key IS NULL AND role IS NOT NULL`,
	"a member that waits beside a free place": `SELECT id FROM (SELECT group_key, min(id) AS id FROM errand_job WHERE role = 1 GROUP BY group_key) j
WHERE (SELECT count(*) FROM errand_job p WHERE p.group_key = j.group_key AND p.role = 2) < (SELECT greatest(coalesce(max(value), 1), 1) FROM errand_setting
  WHERE queue = split_part(j.group_key, ' ', 1) AND kind = '' AND name = 'group_limit')
AND NOT EXISTS (SELECT FROM errand_dead d WHERE d.group_key = j.group_key AND d.role = 3)
AND NOT EXISTS (SELECT FROM errand_setting WHERE queue = split_part(j.group_key, ' ', 1) AND kind = '' AND name = '')`,
	"a group without a lock": `SELECT id FROM errand_job WHERE role > 0 AND group_key NOT IN (SELECT group_key FROM errand_group)
UNION ALL SELECT id FROM errand_dead WHERE role > 0 AND group_key NOT IN (SELECT group_key FROM errand_group)`,
	"a lock without a group":          `SELECT 0 FROM errand_group WHERE group_key NOT IN (SELECT group_key FROM errand_job WHERE role > 0 UNION SELECT group_key FROM errand_dead WHERE role > 0)`,
	"a weight that is not the length": `SELECT id FROM errand_job WHERE weight <> length(args) + coalesce(length(headers), 0)`,
}

// Bounds says 10 of what the Store does not do yet: without a bound its cases would be skipped.
func (d *db) Bounds() storagetest.Bounds {
	return storagetest.Bounds{Promoted: 1000, Expired: 10, Evicted: 10, Scheduled: 10, DeadEvicted: 10, DeadLooked: 10}
}

func (d *db) Invariants(t testing.TB) {
	t.Helper()
	for what, text := range faults {
		rows, err := d.conn.Query(context.Background(), text)
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
