//go:build unix

package torture_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/errandq/errand/storage"
)

// row is a job as the tables have it.
type row struct {
	id      storage.ID
	n       int // its number in the ledger
	table   string
	queue   string
	state   int
	token   int64
	crashes int
}

const (
	ready, running, done, cancelled, dead = 2, 3, 4, 5, 6
)

const sqlRows = `SELECT t, queue, state, j.id, token, crashes, salt, created_at, CAST(COALESCE(j.args, p.args) AS TEXT) FROM (
SELECT 'job' t, lane, state, id, token, crashes, salt, created_at, args FROM errand_job UNION ALL
SELECT 'finished', lane, state, id, token, crashes, salt, created_at, args FROM errand_finished UNION ALL
SELECT 'dead', lane, 6, id, token, crashes, salt, created_at, args FROM errand_dead) j JOIN errand_lane USING (lane)
LEFT JOIN errand_payload p ON p.job = j.id`

func readRows(db *sql.DB) (out []row, err error) {
	rows, err := db.Query(sqlRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var key, created int64
		var salt uint32
		var args string
		if err := rows.Scan(&r.table, &r.queue, &r.state, &key, &r.token, &r.crashes, &salt, &created, &args); err != nil {
			return nil, err
		}
		var a order
		if err := json.Unmarshal([]byte(args), &a); err != nil {
			return nil, fmt.Errorf("args of job %d: %w", key, err)
		}
		r.n = a.N
		r.id = storage.NewID(fromMicros(created), salt, key)
		out = append(out, r)
	}
	return out, rows.Err()
}

// readTicks returns the keys of the jobs that ticks of schedules have become.
func readTicks(db *sql.DB) (map[int64]bool, error) {
	rows, err := db.Query(`SELECT job FROM errand_tick WHERE taken = 'fired'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]bool{}
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil || len(id) != len(storage.ID{}) {
			return nil, fmt.Errorf("job %x of a tick: %w", id, err)
		}
		out[storage.ID(id).Key()] = true
	}
	return out, rows.Err()
}

// gap returns the first acknowledged job that is not there, 0 if there is none, and
// the last job that is. Nothing may have been deleted.
func (l *ledger) gap(t *testing.T, path string) (missing, last int64) {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := readRows(db)
	if err != nil {
		t.Fatal(err)
	}
	there := map[int64]bool{}
	for _, r := range rows {
		there[r.id.Key()] = true
		last = max(last, r.id.Key())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.ids {
		if key := id.Key(); !there[key] && (missing == 0 || key < missing) {
			missing = key
		}
	}
	return missing, last
}
