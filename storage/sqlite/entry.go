package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	entryColumns   = `class, name, family, revision, created_at, updated_at, doc`
	sqlEntry       = `SELECT ` + entryColumns + ` FROM errand_entry WHERE class = ?1 AND name = ?2`
	sqlEntries     = `SELECT ` + entryColumns + ` FROM errand_entry WHERE class = ?1 AND name > ?2 ORDER BY name LIMIT ?3`
	sqlFamily      = `SELECT ` + entryColumns + ` FROM errand_entry WHERE family = ?1 AND family <> '' AND class = ?2 AND name > ?3 ORDER BY name LIMIT ?4`
	sqlRevision    = `SELECT revision FROM errand_family WHERE family = ?1`
	sqlFindEntry   = `SELECT entry, revision, family FROM errand_entry WHERE class = ?1 AND name = ?2`
	sqlAddEntry    = `INSERT INTO errand_entry (class, name, family, revision, created_at, updated_at, doc) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)`
	sqlSetEntry    = `UPDATE errand_entry SET revision = ?2, updated_at = ?3, doc = ?4 WHERE entry = ?1`
	sqlDropEntry   = `DELETE FROM errand_entry WHERE entry = ?1`
	sqlSetRevision = `INSERT INTO errand_family (family, revision) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET revision = excluded.revision`
)

type entryRow struct {
	Class, Name, Family string
	Revision            int64
	CreatedAt           int64 `db:"created_at"`
	UpdatedAt           int64 `db:"updated_at"`
	Doc                 []byte
}

func (r *entryRow) entry() storage.Entry {
	e := storage.Entry{
		Class: r.Class, Name: r.Name, Family: r.Family, Revision: r.Revision,
		CreatedAt: fromMicros(r.CreatedAt), UpdatedAt: fromMicros(r.UpdatedAt), Doc: r.Doc,
	}
	if e.Doc == nil { // what the driver makes of a BLOB of no bytes
		e.Doc = []byte{}
	}
	return e
}

// PutEntries implements [storage.Topics].
func (s *Store) PutEntries(ctx context.Context, now time.Time, entries []storage.Entry) (revision int64, err error) {
	if len(entries) == 0 {
		return 0, s.idle(ctx)
	}
	work, ends := 0, true
	for i := range entries {
		work += 1 + len(entries[i].Doc)/jobBytes
		ends = ends && entries[i].Delete
	}
	err = s.submit(ctx, &request{ends: ends, work: work, run: func(t *tx) (err error) {
		revision, err = t.putEntries(now, entries)
		return err
	}})
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return 0, storage.ErrStale
	}
	return revision, nil
}

// putEntries writes entries, and returns zero if one is stale: an error would have all
// other calls of the batch go again.
func (t *tx) putEntries(now time.Time, entries []storage.Entry) (revision int64, err error) {
	type found struct {
		entry, revision int64
		family          string
	}
	was := make([]found, len(entries))
	for i := range entries {
		e, w := &entries[i], &was[i]
		w.family = e.Family
		err := t.row(sqlFindEntry, []any{e.Class, e.Name}, &w.entry, &w.revision, &w.family)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		if w.revision != e.Revision {
			return 0, nil
		}
	}
	at, families := t.seen(now), map[string]bool{}
	revision = t.token()
	for i := range entries {
		e, w := &entries[i], &was[i]
		switch {
		case e.Delete:
			_, err = t.exec(sqlDropEntry, w.entry)
		case w.entry == 0:
			_, err = t.exec(sqlAddEntry, e.Class, e.Name, e.Family, revision, at, notNil(e.Doc))
		default:
			_, err = t.exec(sqlSetEntry, w.entry, revision, at, notNil(e.Doc))
		}
		if err != nil {
			return 0, err
		}
		if w.family == "" || families[w.family] {
			continue
		}
		families[w.family] = true
		if _, err := t.exec(sqlSetRevision, w.family, revision); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// notNil returns b for a column that is never NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Entry implements [storage.Topics].
func (s *Store) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	var row entryRow
	err := s.readOne(ctx, &row, sqlEntry, class, name)
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Entry{}, err
	}
	return row.entry(), nil
}

// Entries implements [storage.Topics].
func (s *Store) Entries(ctx context.Context, class, family, after string, limit int) (entries []storage.Entry, revision int64, err error) {
	var rows []entryRow
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		if family == "" {
			return tx.SelectContext(ctx, &rows, sqlEntries, class, after, max(limit, 0))
		}
		if err := tx.Get(&revision, sqlRevision, family); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return tx.SelectContext(ctx, &rows, sqlFamily, family, class, after, max(limit, 0))
	})
	if err != nil {
		return nil, 0, err
	}
	for i := range rows {
		entries = append(entries, rows[i].entry())
	}
	return entries, revision, nil
}
