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
FROM main.errand_job j JOIN main.errand_instance i ON i.instance = j.instance WHERE j.state = 3 AND j.instance = ?1`
	sqlUnregistered = `SELECT id, token, until, fate, 0 FROM main.errand_job
WHERE state = 3 AND instance NOT IN (SELECT instance FROM main.errand_instance)`
	sqlLetNext = `UPDATE main.errand_hold SET until = ?5 WHERE queue = ?1 AND kind = ?2 AND job = ?3 AND token = ?4 AND probe = 1 AND until > ?5`
)

// observation is what the Store has seen of the leases of other instances, and
// since when on the monotonic clock each lease has looked the same.
type observation struct {
	mu    sync.Mutex
	peers map[int64]*peerLeases // by instance; 0 stands for those that are not registered
	// owned is how often the instances had changed when each lease was last seen to
	// belong to a registered one.
	owned atomic.Int64
	reads int64 // of leases; for tests
}

// peerLeases is what was seen of the leases of one instance.
type peerLeases struct {
	since  map[heldLease]time.Duration
	pulses int64
	next   time.Duration // the first time when one may have lapsed, but at most a quarter of a lease away
}

// heldLease is a lease as others see it. Each extension changes until.
type heldLease struct{ id, token, until int64 }

// update takes what the instance holds at mono, and returns the leases that have
// looked the same for their full length. A lease of length zero does not lapse.
func (p *peerLeases) update(held []candidate, mono time.Duration) (lapsed []candidate) {
	before := p.since
	p.since, p.next = make(map[heldLease]time.Duration, len(held)), mono
	for i, c := range held {
		since, ok := before[c.heldLease]
		if !ok {
			since = mono
		}
		p.since[c.heldLease] = since
		lease := time.Duration(c.lease) * time.Microsecond
		if i == 0 {
			p.next = mono + lease/4
		}
		if lease > 0 {
			p.next = min(p.next, since+lease)
			if mono-since >= lease {
				lapsed = append(lapsed, c)
			}
		}
	}
	return lapsed
}

// candidate is a lease that may be taken.
type candidate struct {
	heldLease
	fate    storage.Fate
	started int64
	lease   int64 // the length that the holder has promised, in microseconds
	holder  string
	// Of a holder that may live: its pulses are compared again before the lease is
	// taken.
	instance, pulses int64
}

// Alone implements [storage.Peers]. This process looks for others with each
// write and when it is woken.
func (s *Store) Alone() bool {
	alone, changes := s.cache.alone(s.self.number())
	return alone && changes == s.observed.owned.Load()
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
	if err := s.writable(); err != nil {
		return nil, err
	}
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
	r := &request{ends: true, urgent: true, work: len(found), step: len(found)}
	r.run = func(t *tx) (err error) {
		if r.step < len(found) { // those who are gone hold the others still
			out, err = t.reclaim(now, lease, found[:r.step], nil)
			return err
		}
		out, err = t.reclaim(now, lease, found, gone)
		return err
	}
	err = s.submit(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, g := range gone {
		g.close()
		if g.dropped {
			_ = os.Remove(g.path) // best effort: a stale file does no harm
			_ = os.Remove(shownPath(s.path, g.id))
		}
	}
	return out, nil
}

// survey looks at the leases of other instances. It returns at most limit leases
// that may be taken, and the instances that are gone, which the caller closes.
func (s *Store) survey(ctx context.Context, mono, lease time.Duration, limit int) (found []candidate, gone []*deadPeer, err error) {
	o := &s.observed
	o.mu.Lock()
	defer o.mu.Unlock()
	others, changes := s.cache.others(s.self.number())
	peers := map[int64]*peerLeases{}
	for _, p := range others {
		dead, notes, err := s.inspect(p)
		if errors.Is(err, os.ErrPermission) {
			continue // of another user, who keeps the file closed: others may recover what it holds
		}
		if err != nil {
			return nil, gone, err
		}
		if dead != nil && !dead.missing {
			gone = append(gone, dead)
		}
		seen := o.of(p.id)
		peers[p.id] = seen
		if (dead == nil || dead.missing) && seen.since != nil && mono < seen.next {
			continue
		}
		taken, err := s.lapsed(ctx, p, dead, seen, mono, lease)
		if err != nil {
			return nil, gone, translate(err)
		}
		if dead != nil && dead.missing && len(seen.since) == 0 { // it holds nothing
			gone = append(gone, dead)
		}
		for _, c := range taken[:min(len(taken), limit-len(found))] {
			c.holder = p.name
			if c.fate == 0 {
				c.started = notes[c.token].At
				c.fate = fateOf(c.token, notes, dead != nil && dead.crashed)
			}
			found = append(found, c)
		}
	}
	if changes != o.owned.Load() {
		held, err := s.held(ctx, sqlUnregistered)
		if err != nil {
			return nil, gone, translate(err)
		}
		if len(held) == 0 {
			o.owned.Store(changes)
		}
		for i := range held {
			held[i].lease = lease.Microseconds()
		}
		peers[0] = o.of(0)
		taken := peers[0].update(held, mono)
		for _, c := range taken[:min(len(taken), limit-len(found))] {
			c.holder, c.fate = "unknown", cmp.Or(c.fate, storage.Cut)
			found = append(found, c)
		}
	}
	o.peers = peers
	return found, gone, nil
}

// lapsed returns the leases of an instance that may be taken: all if its process
// is gone, else those that have lapsed.
func (s *Store) lapsed(ctx context.Context, p peer, dead *deadPeer, seen *peerLeases, mono, lease time.Duration) ([]candidate, error) {
	if dead == nil {
		if n := s.pulses(p.id); n != seen.pulses {
			seen.pulses, seen.since = n, nil
		}
	}
	held, err := s.held(ctx, sqlHeld, p.id)
	if err != nil {
		return nil, err
	}
	for i := range held {
		c := &held[i]
		switch {
		case dead == nil && seen.pulses == endless:
			c.instance, c.pulses, c.lease = p.id, seen.pulses, 0
		case dead == nil:
			c.instance, c.pulses = p.id, seen.pulses
		case dead.missing: // also of a Store that has closed: its file was to stay
			c.lease = cmp.Or(c.lease, lease.Microseconds())
		}
	}
	taken := seen.update(held, mono)
	if dead != nil && !dead.missing {
		taken = held
	}
	return taken, nil
}

// of returns what was seen of an instance.
func (o *observation) of(id int64) *peerLeases {
	if seen := o.peers[id]; seen != nil {
		return seen
	}
	return &peerLeases{}
}

// deadPeer is an instance whose process is gone. Its file is open, with a shared lock,
// while its leases are taken.
type deadPeer struct {
	peer
	path    string
	file    *os.File // nil if there was none
	missing bool     // somebody has deleted the file: the process may live all the same
	crashed bool     // the process died while the system lived on
	dropped bool     // the registration was deleted
}

func (g *deadPeer) close() {
	if g.file != nil {
		_ = g.file.Close() // only ever read
	}
}

// inspect returns an instance that is gone with its notes, and nil for one that
// lives. If the file is missing and the instance is of this boot, the process may
// live, and its leases must lapse. The notes of another boot are not returned:
// they were never synced.
func (s *Store) inspect(p peer) (*deadPeer, map[int64]host.Note, error) {
	path := instancePath(s.path, p.id)
	f, err := openExisting(path, os.O_RDWR, s.info)
	if errors.Is(err, storage.ErrUnsupportedDB) {
		return nil, nil, nil // somebody else has put the file there: the leases must lapse
	}
	if errors.Is(err, os.ErrNotExist) {
		return &deadPeer{peer: p, path: path, missing: p.boot == host.BootID()}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	free, err := host.TryShared(f)
	if err != nil || !free {
		return nil, nil, errors.Join(err, f.Close())
	}
	g := &deadPeer{peer: p, path: path, file: f, crashed: p.boot == host.BootID()}
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

// fateOf returns the fate of an attempt by the notes of its holder. If the holder
// has not crashed, it may call the handler even now, or has no notes.
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
	s.observed.reads++
	var out []candidate
	var c candidate
	dest := []any{&c.id, &c.token, &c.until, &c.fate, &c.lease}
	err := plain{ctx, s.inner}.each(text, of, dest, func() { out = append(out, c) })
	return out, err
}

// reclaim takes the leases that have not changed since they were observed, and
// deletes the registrations of instances that are gone.
func (t *tx) reclaim(now time.Time, lease time.Duration, found []candidate, gone []*deadPeer) ([]storage.Reclaimed, error) {
	at := t.seen(now)
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
			var row jobRow
			row.Token = t.token()
			d := delta{change: setTaken, was: &facts{ID: c.id, Token: c.token}, row: &row, seenUntil: c.until, holder: holder, at: until, fate: c.fate}
			found, err := t.apply(&d)
			if err != nil {
				return nil, err
			}
			if !found {
				continue
			}
			r.Previous, r.Cancelling = c.token, d.cancelling
			if err = t.fill(&r.Leased, &row); err != nil {
				return nil, err
			}
			if err = t.letNext(&r, at); err != nil {
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

// letNext has the holds that wait for a job let the next one through: whoever ran it is
// gone.
func (t *tx) letNext(r *storage.Reclaimed, at int64) error {
	n, err := t.execCount(sqlLetNext, r.Queue, r.Kind, r.Key, r.Previous, at)
	if n > 0 {
		t.holdsChange(storage.Lane{Queue: r.Queue, Kind: r.Kind})
	}
	return err
}

// starting answers for leases whose handlers are about to be called. There is nothing to
// write: the notes say when they are.
func (t *tx) starting(leases []storage.Lease) (out []storage.ItemResult, err error) {
	for _, l := range leases {
		result := storage.Applied
		var lane int64
		if err = t.row(sqlLaneOf, []any{l.Key, l.Token}, &lane); errors.Is(err, sql.ErrNoRows) {
			result, err = t.notHeld(l)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, result)
	}
	return out, nil
}
