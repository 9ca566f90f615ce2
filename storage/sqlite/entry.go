package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	entryColumns   = `class, name, family, revision, created_at, updated_at, doc`
	sqlEntry       = `SELECT ` + entryColumns + ` FROM main.errand_entry WHERE class = ?1 AND name = ?2`
	sqlEntries     = `SELECT ` + entryColumns + ` FROM main.errand_entry WHERE class = ?1 AND name > ?2 ORDER BY name LIMIT ?3`
	sqlFamily      = `SELECT ` + entryColumns + ` FROM main.errand_entry WHERE family = ?1 AND family <> '' AND class = ?2 AND name > ?3 ORDER BY name LIMIT ?4`
	sqlRevision    = `SELECT revision FROM main.errand_family WHERE family = ?1`
	sqlFindEntry   = `SELECT entry, revision, family FROM main.errand_entry WHERE class = ?1 AND name = ?2`
	sqlAddEntry    = `INSERT INTO main.errand_entry (class, name, family, revision, created_at, updated_at, doc) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)`
	sqlSetEntry    = `UPDATE main.errand_entry SET revision = ?2, updated_at = ?3, doc = ?4 WHERE entry = ?1`
	sqlDropEntry   = `DELETE FROM main.errand_entry WHERE entry = ?1`
	sqlSetRevision = `INSERT INTO main.errand_family (family, revision) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET revision = excluded.revision`
)

// sqlMessageWith are sqlMessage with the revisions of as many entries as the index says.
var sqlMessageWith = func() (texts [storage.MostEntries + 1]string) {
	columns := messageColumns + `, body`
	for n := range texts {
		if n > 0 {
			columns += fmt.Sprintf(`, IFNULL((SELECT revision FROM main.errand_entry WHERE class = ?%d AND name = ?%d), 0)`, 2*n, 2*n+1)
		}
		texts[n] = `SELECT ` + columns + ` FROM main.errand_message m CROSS JOIN main.errand_body b ON b.message = m.message WHERE id = ?1`
	}
	return texts
}()

type entryRow struct {
	Class, Name, Family string
	Revision            int64
	CreatedAt           int64 `db:"created_at"`
	UpdatedAt           int64 `db:"updated_at"`
	Doc                 []byte
}

// dest returns where the columns of sqlEntry go.
func (r *entryRow) dest() []any {
	return []any{&r.Class, &r.Name, &r.Family, &r.Revision, &r.CreatedAt, &r.UpdatedAt, &r.Doc}
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
	work, ends := workOfEntries(entries)
	err = s.submit(ctx, &request{ends: ends, work: work, run: func(t *tx) (err error) {
		if revision, err = t.putEntries(now, entries); revision != 0 && err == nil {
			err = t.did(ctx, 0)
		}
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

// workOfEntries returns how much work it is to write entries, and whether all are deleted.
func workOfEntries(entries []storage.Entry) (work int, ends bool) {
	ends = true
	for i := range entries {
		work += 1 + len(entries[i].Doc)/jobBytes
		ends = ends && entries[i].Delete
	}
	return work, ends
}

// PutEntriesTx implements [storage.TxEnqueuer].
func (s *Store) PutEntriesTx(ctx context.Context, in any, now time.Time, entries []storage.Entry) (revision int64, err error) {
	if len(entries) == 0 {
		return 0, s.idle(ctx)
	}
	work, ends := workOfEntries(entries)
	if !ends {
		if err := s.intake(); err != nil {
			return 0, s.oursIn(in, err)
		}
	}
	var refused error
	err = s.inside(ctx, in, false, false, func(t *tx) (err error) {
		if !ends {
			if refused, err = s.reserveInTx(t, work); refused != nil || err != nil {
				return err
			}
		}
		if revision, err = t.putEntries(now, entries); revision != 0 && err == nil {
			err = t.did(ctx, 0)
		}
		return err
	})
	switch {
	case err != nil:
		return 0, err
	case refused != nil:
		return 0, s.oursIn(in, refused)
	case revision == 0:
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
	err := s.readOne(ctx, row.dest(), sqlEntry, class, name)
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Entry{}, err
	}
	return row.entry(), nil
}

// EntryTx implements [storage.TxEnqueuer].
func (s *Store) EntryTx(ctx context.Context, in any, class, name string) (storage.Entry, error) {
	var row entryRow
	found := false
	err := s.inside(ctx, in, false, false, func(t *tx) error {
		err := t.row(sqlEntry, []any{class, name}, row.dest()...)
		if found = err == nil; errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Entry{}, err
	}
	return row.entry(), nil
}

// MessageWith implements [storage.Topics]. It is read for each delivery, so one statement
// does it.
func (s *Store) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	var row messageRow
	revisions := make([]int64, len(entries))
	args := append(make([]any, 0, 1+2*storage.MostEntries), id)
	dest := append(make([]any, 0, 8+storage.MostEntries), row.dest()...)
	for i, e := range entries {
		args, dest = append(args, e.Class, e.Name), append(dest, &revisions[i])
	}
	err := s.readOne(ctx, dest, sqlMessageWith[len(entries)], args...)
	if errors.Is(err, sql.ErrNoRows) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Message{}, nil, err
	}
	row.Body = notNil(row.Body)
	return row.message(), revisions, nil
}

// dest returns where the columns of sqlMessage go.
func (r *messageRow) dest() []any {
	return []any{&r.Message, &r.ID, &r.Topic, &r.PublishedAt, &r.KeepUntil, &r.Cursor, &r.Attributes, &r.Body}
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

// EntriesTx implements [storage.TxEnqueuer].
func (s *Store) EntriesTx(ctx context.Context, in any, class, family, after string, limit int) (entries []storage.Entry, revision int64, err error) {
	err = s.inside(ctx, in, false, false, func(t *tx) error {
		text, args := sqlEntries, []any{class, after, max(limit, 0)}
		if family != "" {
			if err := t.row(sqlRevision, []any{family}, &revision); err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			text, args = sqlFamily, []any{family, class, after, max(limit, 0)}
		}
		var row entryRow
		return t.each(text, args, row.dest(), func() {
			row.Doc = bytes.Clone(row.Doc)
			entries = append(entries, row.entry())
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, revision, nil
}
