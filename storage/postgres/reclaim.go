package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	// gone: nobody holds the lock of the instance. The shared lock that says so ends with
	// the transaction.
	sqlInstances = `SELECT instance, name, lease, closed, seen_at = 0, instance <> $2 AND pg_try_advisory_xact_lock_shared($1::integer, instance) FROM errand_instance`
	sqlSeen      = `UPDATE errand_instance SET seen_at = $2 WHERE instance = $1`
	// An instance that leased while others forgot it has leases and no row.
	sqlStray   = `SELECT DISTINCT instance FROM errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`
	sqlRunning = `SELECT id, token, until, instance FROM errand_job WHERE state = 3 AND instance = ANY($1::integer[])`

	// began is when the start of an attempt was written that is found now to have crashed.
	takeChosen = `, u AS (UPDATE errand_job j SET token = nextval('errand_token'), instance = $2, until = $3, call = $4, doubt = c.fate, started_at = NULL
  FROM c WHERE j.id = c.id RETURNING j.*, c.token AS previous, c.holder, CASE WHEN c.known IS NULL AND c.fate = 3 THEN c.started_at END AS began)
SELECT ` + leasedColumns + `, holder, cancelling, doubt, began FROM u`
	// The fate of an attempt survives whoever has found it out.
	known       = `, CASE WHEN doubt > 1 THEN doubt END AS known, started_at`
	sqlTakeOver = `WITH c AS MATERIALIZED (
  SELECT id, token, instance AS holder` + known + `,
    CASE WHEN doubt > 1 THEN doubt WHEN started_at IS NOT NULL THEN 3 ELSE 2 END AS fate FROM errand_job WHERE state = 3 AND instance = ANY($1::integer[]) ORDER BY id LIMIT $5 FOR UPDATE SKIP LOCKED)` + takeChosen
	sqlTakeLapsed = `WITH c AS MATERIALIZED (
  SELECT j.id, j.token, j.instance AS holder` + known + `, greatest(doubt, 2) AS fate FROM unnest($1::bigint[], $5::bigint[], $6::bigint[]) f(id, token, until)
  JOIN errand_job j ON j.id = f.id AND j.token = f.token AND j.until = f.until AND j.state = 3 FOR UPDATE OF j SKIP LOCKED)` + takeChosen

	sqlForget = `DELETE FROM errand_instance i WHERE instance = ANY($1::integer[])
AND NOT EXISTS (SELECT FROM errand_job j WHERE j.state = 3 AND j.instance = i.instance)`
)

const (
	// seenEvery is how often an instance notes that it is there.
	seenEvery = 10 * time.Second
	// grace is for how long nobody may hold the lock of an instance before it is gone: one
	// whose session was cut off, or whose server has started anew, lives, and takes its lock
	// again with its next Reclaim. One call of Reclaim counts for at most a quarter of it:
	// whoever was stopped itself has seen nothing meanwhile.
	grace = 2 * time.Second
	// forgetAfter is for how long an instance has to be gone before its row is deleted.
	forgetAfter = time.Minute
)

// fates are those that the tables know.
var fates = [...]storage.Fate{2: storage.Cut, 3: storage.Crashed}

// observed is what calls of Reclaim have seen of other instances. Times are readings of
// the monotonic clock.
type observed struct {
	mu     sync.Mutex
	leases map[int64]lease         // by key of the job
	looked map[int32]time.Duration // when an instance's leases were last read
	free   map[int32]sighting      // instances whose lock nobody holds
	gone   map[int32]time.Duration // since when an instance is gone
	seen   time.Duration           // when seen_at was last written
	begun  bool
}

// sighting is of the lock of an instance that nobody holds.
type sighting struct {
	last, sum time.Duration // when it was seen last, and for how long in all
}

// lease is a lease of another instance as it was first seen.
type lease struct {
	storage.Lease
	until  int64
	holder int32
	at     time.Duration
}

// peer is another instance.
type peer struct {
	name   string
	lease  time.Duration
	closed bool
	gone   bool
	left   bool // there is no process
}

func newObserved() observed {
	return observed{leases: map[int64]lease{}, looked: map[int32]time.Duration{}, free: map[int32]sighting{}, gone: map[int32]time.Duration{}}
}

// Reclaim implements [storage.Store]. An instance is gone if its session has ended, and it
// has not begun another one within two seconds.
func (s *Store) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.self.register(ctx, s, now); err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	peers, err := s.peers(ctx, now, mono)
	if err != nil {
		return nil, err
	}
	s.seen.spare(mono, peers)
	if err := s.look(ctx, mono, peers); err != nil {
		return nil, err
	}
	gone, forget := s.seen.missing(mono, peers)
	lapsed := s.seen.lapsed(mono, peers)
	told, err := s.tell(ctx, limit)
	if limit -= len(told); err != nil || len(gone)+len(lapsed) == 0 || limit <= 0 {
		return told, err
	}
	out, err := s.takeOver(ctx, now, lease, limit, peers, gone, forget, lapsed)
	for i := range out {
		delete(s.seen.leases, out[i].Key)
	}
	if len(told) > 0 {
		err = nil // as what was told counts
	}
	return append(told, out...), err
}

// peers reads the other instances, by the session of this one.
func (s *Store) peers(ctx context.Context, now time.Time, mono time.Duration) (map[int32]peer, error) {
	all := map[int32]peer{}
	self := s.self.number()
	here := false
	err := s.self.ask(ctx, s, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		each(b, func(row pgx.CollectableRow) error {
			var id int32
			var lease int64
			var p peer
			if err := row.Scan(&id, &p.name, &lease, &p.closed, &p.left, &p.gone); err != nil {
				return err
			}
			p.lease = fromLength(lease)
			if id == self {
				here = true
			} else {
				all[id] = p
			}
			return nil
		}, sqlInstances, s.locks, self)
		s.readNew(b)
		b.Queue(sqlClock).QueryRow(s.clock.scan)
		if !s.seen.begun || mono-s.seen.seen >= seenEvery {
			b.Queue(sqlSeen, self, micros(now))
			each(b, func(row pgx.CollectableRow) error {
				var id int32
				err := row.Scan(&id)
				all[id] = peer{gone: true, left: true}
				return err
			}, sqlStray)
			s.seen.begun, s.seen.seen = true, mono
		}
		return part(ctx, c, b)
	})
	if err == nil && !here { // others took it for gone, and have forgotten it
		s.self.now.Store(nil)
		return all, s.self.register(ctx, s, now)
	}
	return all, err
}

// spare takes instances for living whose lock has not been free for long enough.
func (o *observed) spare(mono time.Duration, peers map[int32]peer) {
	for id := range o.free {
		if p, ok := peers[id]; !ok || !p.gone {
			delete(o.free, id)
		}
	}
	for id, p := range peers {
		if !p.gone || p.left {
			continue
		}
		was, again := o.free[id]
		if again {
			was.sum += max(0, min(mono-was.last, grace/4))
		}
		was.last = mono
		o.free[id] = was
		if was.sum < grace {
			p.gone = false
			peers[id] = p
		}
	}
}

// look reads the leases of living instances, four times in the length of the longest, and
// when one that was seen may have lapsed.
func (s *Store) look(ctx context.Context, mono time.Duration, peers map[int32]peer) error {
	var of []int32
	for id, p := range peers {
		if p.gone || p.closed {
			continue
		}
		last, ok := s.seen.looked[id]
		if !ok || mono-last >= p.lease/4 || s.seen.ripe(id, mono, p.lease) {
			of = append(of, id)
		}
	}
	if len(of) == 0 {
		return nil
	}
	found := map[int64]lease{}
	err := s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		clear(found)
		b := &pgx.Batch{}
		each(b, func(row pgx.CollectableRow) error {
			l := lease{at: mono}
			err := row.Scan(&l.Key, &l.Token, &l.until, &l.holder)
			found[l.Key] = l
			return err
		}, sqlRunning, of)
		return part(ctx, c, b)
	})
	if err != nil {
		return err
	}
	s.seen.note(mono, of, found)
	return nil
}

// ripe reports whether a lease of an instance may have lapsed.
func (o *observed) ripe(holder int32, mono, longest time.Duration) bool {
	for _, l := range o.leases {
		if l.holder == holder && mono-l.at >= longest {
			return true
		}
	}
	return false
}

// note takes note of the leases of instances that were looked at.
func (o *observed) note(mono time.Duration, of []int32, found map[int64]lease) {
	for _, id := range of {
		o.looked[id] = mono
	}
	for key, was := range o.leases {
		if is, ok := found[key]; ok && is.Token == was.Token && is.until == was.until && is.holder == was.holder {
			delete(found, key) // not extended
		} else if slices.Contains(of, was.holder) {
			delete(o.leases, key)
		}
	}
	for key, l := range found {
		o.leases[key] = l
	}
}

// missing returns the instances that are gone, and those of them that have been for so long
// that they can be forgotten.
func (o *observed) missing(mono time.Duration, peers map[int32]peer) (gone, forget []int32) {
	for id := range o.gone {
		if p, ok := peers[id]; !ok || !p.gone {
			delete(o.gone, id)
		}
	}
	for key, l := range o.leases {
		if _, ok := peers[l.holder]; !ok {
			delete(o.leases, key)
		}
	}
	for id := range o.looked {
		if _, ok := peers[id]; !ok {
			delete(o.looked, id)
		}
	}
	for id, p := range peers {
		if !p.gone {
			continue
		}
		gone = append(gone, id)
		if since, ok := o.gone[id]; !ok {
			o.gone[id] = mono
		} else if mono-since >= forgetAfter {
			forget = append(forget, id)
		}
	}
	slices.Sort(gone)
	return gone, forget
}

// lapsed returns the leases of living instances that were not extended for the full length
// of the longest.
func (o *observed) lapsed(mono time.Duration, peers map[int32]peer) (all []lease) {
	for _, l := range o.leases {
		p, ok := peers[l.holder]
		// A lease that was granted after p was read may be the first that it has promised.
		if ok && !p.gone && !p.closed && p.lease > 0 && mono-l.at >= p.lease {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lease) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// takeOver takes the leases of instances that are gone, and then those that have lapsed.
func (s *Store) takeOver(ctx context.Context, now time.Time, length time.Duration, limit int, peers map[int32]peer, gone, forget []int32, lapsed []lease) (out []storage.Reclaimed, err error) {
	t := taking{s, s.self.now.Load(), peers, length}
	until := micros(now.Add(length))
	if len(gone) > 0 {
		if out, err = t.take(ctx, sqlTakeOver, gone, until, limit); err != nil {
			return nil, err
		}
	}
	if len(forget) > 0 {
		err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, sqlForget, forget)
			return err
		})
	}
	if lapsed = lapsed[:min(len(lapsed), limit-len(out))]; len(lapsed) > 0 && err == nil {
		var keys, tokens, untils []int64
		for _, l := range lapsed {
			keys, tokens, untils = append(keys, l.Key), append(tokens, l.Token), append(untils, l.until)
		}
		var more []storage.Reclaimed
		more, err = t.take(ctx, sqlTakeLapsed, keys, until, tokens, untils)
		out = append(out, more...)
	}
	if len(out) > 0 {
		t.self.promised(length)
		err = nil // what was taken is durable; what failed is tried again with the next call
	}
	return out, err
}

// taking is a takeover of leases.
type taking struct {
	s      *Store
	self   *registration
	peers  map[int32]peer
	length time.Duration
}

// take takes leases of instances or of jobs, by a statement with more parameters. What it
// takes is known before the commit, so that it can be told later if the answer is lost.
func (t *taking) take(ctx context.Context, text string, of any, until int64, more ...any) (out []storage.Reclaimed, err error) {
	s := t.s
	number := s.sent.begin()
	args := append([]any{of, t.self.id, until, ofRow(number)}, more...)
	err = s.attempt(ctx, func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		s.readNew(b)
		t.self.promise(b, t.length)
		each(b, func(row pgx.CollectableRow) error {
			r, err := t.scan(row)
			out = append(out, r)
			return err
		}, text, args...)
		if err := part(ctx, c, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(sqlCommit)
		return s.commitAs(ctx, c, b, number, false)
	})
	if lost, ok := errors.AsType[*unanswered](err); ok {
		err = s.findOut(ctx, lost, isTold)
		if errors.Is(err, storage.ErrUnknownOutcome) {
			s.sent.keep(untold{number: number, took: out})
			return nil, err
		}
	}
	s.sent.end(number)
	if err != nil {
		return nil, translate(err)
	}
	return out, nil
}

func (t *taking) scan(row pgx.CollectableRow) (r storage.Reclaimed, err error) {
	var holder int32
	var fate int16
	var began *int64
	r.Leased, err = t.s.scanLeased(row, &holder, &r.Cancelling, &fate, &began)
	r.Fate, r.Holder, r.WriteStart = fates[fate], t.peers[holder].name, false
	if began != nil {
		r.StartedAt = fromMicros(*began)
	}
	return r, err
}
