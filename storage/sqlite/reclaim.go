package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	// The lease that an instance has promised is read with the jobs it holds:
	// read before them it may be that of the time before it took them.
	sqlHeld = `SELECT j.id, j.token, j.until, j.fate, i.lease
FROM errand_job j JOIN errand_instance i ON i.instance = j.instance WHERE j.state = 3 AND j.instance = ?1`
	sqlUnregistered = `SELECT id, token, until, fate, 0 FROM errand_job
WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`
	sqlTake = `UPDATE errand_job SET token = ?4, instance = ?5, until = ?6, fate = ?7
WHERE id = ?1 AND token = ?2 AND until = ?3 AND state = 3
RETURNING ` + leasedColumns + `, cancelling`
)

// observer remembers which leases of others have been seen, and since when on
// the monotonic clock they have looked the same.
type observer struct {
	mu      sync.Mutex
	views   map[int64]*view // by instance; 0 stands for those that are not registered
	settled atomic.Int64    // so often had the instances changed when no lease was without one
	reads   int64           // of leases; for tests
}

// view is what was seen of the leases of an instance.
type view struct {
	seen   map[sighting]time.Duration
	pulses int64
	next   time.Duration // when one may have lapsed; until then they are looked at four times in a lease
}

type sighting struct{ id, token, until int64 }

// look takes what is held at mono, and gives what looks the same for a full
// lease of its holder. A lease of zero does not lapse.
func (v *view) look(held []candidate, mono time.Duration) (lapsed []candidate) {
	before := v.seen
	v.seen, v.next = make(map[sighting]time.Duration, len(held)), mono
	for i, c := range held {
		since, ok := before[c.sighting]
		if !ok {
			since = mono
		}
		v.seen[c.sighting] = since
		lease := time.Duration(c.lease) * time.Microsecond
		if i == 0 {
			v.next = mono + lease/4
		}
		if lease > 0 {
			v.next = min(v.next, since+lease)
			if mono-since >= lease {
				lapsed = append(lapsed, c)
			}
		}
	}
	return lapsed
}

// candidate is a lease that may be taken.
type candidate struct {
	sighting
	fate    storage.Fate
	started int64
	lease   int64 // of the holder, in microseconds
	holder  string
	// of a holder that may live: it is asked again before the lease is taken
	instance, pulses int64
}

// Alone tells whether no other instance was registered when this process last
// looked, which it does with each write and when woken. It is not, if leases
// may have been left without an instance.
func (s *Store) Alone() bool {
	alone, changes := s.cache.alone(s.self.number())
	return alone && changes == s.sight.settled.Load()
}

// others reports whether another process may have to know what this one does.
func (s *Store) others() bool {
	if s.opts.SingleProcess {
		return false
	}
	alone, _ := s.cache.alone(s.self.number())
	return !alone
}

// Reclaim implements [storage.Store].
func (s *Store) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if _, err := s.refresh(ctx); err != nil {
		return nil, translate(err)
	}
	found, gone, err := s.survey(ctx, mono, lease, limit)
	defer func() {
		for _, g := range gone {
			g.close()
		}
	}()
	if err != nil || len(found) == 0 && len(gone) == 0 {
		return nil, err
	}
	var out []storage.Reclaimed
	err = s.submit(ctx, &request{urgent: true, work: len(found), run: func(t *tx) (err error) {
		out, err = t.reclaim(now, lease, found, gone)
		return err
	}})
	if err != nil {
		return nil, err
	}
	for _, g := range gone {
		g.close()
		if g.dropped {
			_ = os.Remove(g.path) // best effort: a stale file does no harm
		}
	}
	return out, nil
}

// survey looks at the leases of others for those that may be taken, at most
// limit, and for instances that are gone, which the caller closes.
func (s *Store) survey(ctx context.Context, mono, lease time.Duration, limit int) (found []candidate, gone []*deadRival, err error) {
	s.sight.mu.Lock()
	defer s.sight.mu.Unlock()
	others, changes := s.cache.others(s.self.number())
	views := map[int64]*view{}
	for _, r := range others {
		g, notes, err := s.inspect(r)
		if errors.Is(err, os.ErrPermission) {
			continue // of another user, who keeps it to himself: others may recover what it holds
		}
		if err != nil {
			return nil, gone, err
		}
		if g != nil && !g.missing {
			gone = append(gone, g)
		}
		v := s.sight.of(r.id)
		views[r.id] = v
		if (g == nil || g.missing) && v.seen != nil && mono < v.next {
			continue
		}
		lives := g == nil
		if lives {
			if n := s.pulses(r.id); n != v.pulses {
				v.pulses, v.seen = n, nil
			}
		}
		held, err := s.held(ctx, sqlHeld, r.id)
		if err != nil {
			return nil, gone, translate(err)
		}
		if lives && v.pulses == endless {
			for i := range held {
				held[i].lease = 0
			}
		}
		if g != nil && g.missing {
			for i := range held { // also of a Store that has closed: its file was to stay
				held[i].lease = cmp.Or(held[i].lease, lease.Microseconds())
			}
			if len(held) == 0 {
				gone = append(gone, g)
			}
		}
		taken := v.look(held, mono)
		if g != nil && !g.missing {
			taken = held
		}
		for _, c := range taken[:min(len(taken), limit-len(found))] {
			if c.holder = r.name; lives {
				c.instance, c.pulses = r.id, v.pulses
			}
			if c.fate == 0 {
				c.started = notes[c.token].At
				c.fate = fateOf(c.token, notes, g != nil && g.crashed)
			}
			found = append(found, c)
		}
	}
	if changes != s.sight.settled.Load() {
		held, err := s.held(ctx, sqlUnregistered)
		if err != nil {
			return nil, gone, translate(err)
		}
		if len(held) == 0 {
			s.sight.settled.Store(changes)
		}
		v := s.sight.of(0)
		views[0] = v
		for i := range held {
			held[i].lease = lease.Microseconds()
		}
		taken := v.look(held, mono)
		for _, c := range taken[:min(len(taken), limit-len(found))] {
			c.holder, c.fate = "unknown", cmp.Or(c.fate, storage.Cut)
			found = append(found, c)
		}
	}
	s.sight.views = views
	return found, gone, nil
}

// of gives what was seen of an instance.
func (o *observer) of(id int64) *view {
	if v := o.views[id]; v != nil {
		return v
	}
	return &view{}
}

// deadRival is an instance whose process is gone. Its lock is held while its
// leases are taken.
type deadRival struct {
	rival
	path    string
	file    *os.File // nil if there was none
	missing bool     // it may live all the same: somebody has deleted the file
	crashed bool     // its process died while the system lived on
	dropped bool     // its registration was deleted
}

func (g *deadRival) close() {
	if g.file != nil {
		_ = g.file.Close() // only ever read
	}
}

// inspect finds out whether an instance is gone, and then what it has noted. A
// file that is missing says nothing, unless it is of another boot: a process
// that lives goes on without it, and so its leases must lapse. The notes of
// another boot were never synced, and say nothing either.
func (s *Store) inspect(r rival) (*deadRival, map[int64]host.Note, error) {
	path := instancePath(s.path, r.id)
	f, err := openExisting(path, os.O_RDWR, s.info)
	if errors.Is(err, storage.ErrUnsupportedDB) {
		return nil, nil, nil // put there by somebody else: what it holds lapses
	}
	if errors.Is(err, os.ErrNotExist) {
		return &deadRival{rival: r, path: path, missing: r.boot == host.BootID()}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	free, err := host.TryLock(f)
	if err != nil || !free {
		return nil, nil, errors.Join(err, f.Close())
	}
	g := &deadRival{rival: r, path: path, file: f, crashed: r.boot == host.BootID()}
	if !g.crashed {
		return g, nil, nil
	}
	notes, err := host.ReadNotes(f)
	if err != nil {
		g.close()
		return nil, nil, err
	}
	return g, notes, nil
}

// fateOf judges an attempt by what its holder has noted. A holder that lives
// may call the handler even now, and notes of another boot say nothing.
func fateOf(token int64, notes map[int64]host.Note, crashed bool) storage.Fate {
	if !crashed {
		return storage.Cut
	}
	n, started := notes[token]
	switch {
	case !started:
		return storage.Unstarted
	case n.Ended:
		return storage.Cut
	}
	return storage.Crashed
}

func (s *Store) held(ctx context.Context, text string, of ...any) ([]candidate, error) {
	s.sight.reads++
	rows, err := s.inner.QueryContext(ctx, text, of...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []candidate
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.id, &c.token, &c.until, &c.fate, &c.lease); err != nil {
			return nil, scanError(rows, err)
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// reclaim takes the leases that are still what they were when looked at.
func (t *tx) reclaim(now time.Time, lease time.Duration, found []candidate, gone []*deadRival) ([]storage.Reclaimed, error) {
	t.seen(now)
	var out []storage.Reclaimed
	if len(found) > 0 {
		holder, err := t.register(lease)
		if err != nil {
			return nil, err
		}
		until := micros(now.Add(lease))
		for _, c := range found {
			if c.instance != 0 && t.store.pulses(c.instance) != c.pulses {
				continue
			}
			r := storage.Reclaimed{Fate: c.fate, Holder: c.holder, StartedAt: timeOrZero(c.started)}
			var row leasedRow
			token := t.token()
			err := t.row(sqlTake, []any{c.id, c.token, c.until, token, holder, until, c.fate},
				append(row.dest(), &r.Cancelling)...)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if r.Leased, err = t.leased(&row, token); err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	for _, g := range gone {
		res, err := t.exec(sqlDropInstance, g.id)
		if err != nil {
			return nil, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, err
		}
		if g.dropped = n > 0; g.dropped {
			t.meta.gen++
		}
	}
	return out, nil
}
