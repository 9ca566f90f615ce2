//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/errandq/errand/storage"
)

// mine is the application's own table, in the file of the queue: the number of
// each job that is enqueued in a transaction, written in the same.
const (
	sqlMakeMine = "CREATE TABLE IF NOT EXISTS mine (n INTEGER)"
	sqlAddMine  = "INSERT INTO mine VALUES (?1)"
	sqlHasMine  = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'mine'"
	sqlMine     = "SELECT n FROM mine"
)

// addMine does what an application does in its transaction.
func addMine(ctx context.Context, tx *sql.Tx, n int) error {
	if _, err := tx.ExecContext(ctx, sqlMakeMine); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, sqlAddMine, n)
	return err
}

// halves finds transactions of which one half is there.
func (l *ledger) halves(f *findings, db *sql.DB, rows []row) error {
	mine, err := readMine(db)
	if err != nil {
		return err
	}
	jobs := map[int]bool{}
	for _, r := range rows {
		jobs[r.n] = true
	}
	deleted := func(id storage.ID, known bool) bool {
		if known {
			return l.entry(id.Key()).gone(l.over)
		}
		for _, e := range l.jobs { // it may be any
			if e.gone(l.over) {
				return true
			}
		}
		return false
	}
	for n := range l.txs {
		id, known := l.ids[n]
		switch {
		case mine[n] == jobs[n]:
		case jobs[n]:
			f.broken = append(f.broken, fmt.Sprintf("number %d is a job without the row of its transaction", n))
		case !deleted(id, known):
			f.broken = append(f.broken, fmt.Sprintf("number %d is a row without the job of its transaction", n))
		}
	}
	return nil
}

func readMine(db *sql.DB) (map[int]bool, error) {
	var there bool
	if err := db.QueryRow(sqlHasMine).Scan(&there); err != nil || !there {
		return nil, err
	}
	rows, err := db.Query(sqlMine)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int]bool{}
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		out[n] = true
	}
	return out, rows.Err()
}
