package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	sqlPlace = `SELECT lane, state, priority, due_at, salt, created_at, EXISTS (SELECT 1 FROM errand_urgent WHERE job = id) AS urgent
FROM errand_job WHERE id = ?1`
	// In the order of errand_job_ready, as far as ?5 rows.
	sqlAhead = `SELECT 1 FROM errand_job WHERE state = 2 AND lane = ?1 AND priority > ?2
UNION ALL SELECT 1 FROM errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at < ?3
UNION ALL SELECT 1 FROM errand_job WHERE state = 2 AND lane = ?1 AND priority = ?2 AND due_at = ?3 AND id < ?4
LIMIT ?5`
)

// Ahead implements [storage.Ranker].
func (s *Store) Ahead(ctx context.Context, id storage.ID, most int) (a storage.Ahead, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		var r struct {
			Lane, Priority int64
			State          stateCode
			DueAt          int64 `db:"due_at"`
			CreatedAt      int64 `db:"created_at"`
			Salt           uint32
			Urgent         bool
		}
		err := tx.Get(&r, sqlPlace, id.Key())
		if errors.Is(err, sql.ErrNoRows) {
			return storage.ErrNotFound
		}
		if err != nil {
			return err
		}
		if storage.NewID(fromMicros(r.CreatedAt), r.Salt, id.Key()) != id {
			return storage.ErrNotFound
		}
		if a.Urgent = r.Urgent; r.State != ready {
			return nil
		}
		var rows []bool
		err = tx.Select(&rows, sqlAhead, r.Lane, r.Priority, r.DueAt, id.Key(), most+1)
		a.N, a.More = min(len(rows), most), len(rows) > most
		return err
	})
	return a, err
}
