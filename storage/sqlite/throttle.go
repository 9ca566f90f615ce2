package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	sqlBucket     = `SELECT full FROM main.errand_bucket WHERE queue = ?1 AND kind = ?2`
	sqlFill       = `INSERT INTO main.errand_bucket (queue, kind, full) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET full = excluded.full`
	sqlGiveBack   = `UPDATE main.errand_bucket SET full = full - ?3 WHERE queue = ?1 AND kind = ?2`
	sqlDropBucket = `DELETE FROM main.errand_bucket WHERE queue = ?1 AND kind = ?2`
)

// bucketOf returns the bucket of a queue or kind as it is stored, zero if it has none.
func bucketOf(tx *sqlx.Tx, lane storage.Lane) (b storage.Bucket, err error) {
	var rows []struct {
		Name  storage.Setting
		Value int64
	}
	if err := tx.Select(&rows, sqlSettingsOf, lane.Queue, lane.Kind); err != nil {
		return b, err
	}
	set := storage.Settings{}
	for _, r := range rows {
		set[r.Name] = r.Value
	}
	s, ok := storage.StartsOf(set)
	if !ok {
		return b, nil
	}
	var full int64
	if err := tx.Get(&full, sqlBucket, lane.Queue, lane.Kind); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return b, err
	}
	return storage.Bucket{Starts: s, Full: fromMicros(full)}, nil
}

// starts are the shared throttles of queues and kinds. A map that others have is not
// changed any more.
type starts map[storage.Lane]storage.Starts

// starts returns those that are set, nil if there are none.
func (all laneSettings) starts() (s starts) {
	for lane, set := range all {
		if r, ok := storage.StartsOf(set); ok && (lane.Queue == "") != (lane.Kind == "") {
			if s == nil {
				s = starts{}
			}
			s[lane] = r
		}
	}
	return s
}

// starts returns the shared throttles as the transaction has left them, and their version.
func (t *tx) starts() (starts, int64, error) {
	if !t.reset {
		t.store.cache.mu.RLock()
		defer t.store.cache.mu.RUnlock()
		return t.store.cache.starts, t.store.cache.restarted, nil
	}
	all, err := t.settings()
	return all.starts(), -t.meta.gen, err // those of the cache are positive
}

// bucket is that of a queue or kind, for one exchange.
type bucket struct {
	storage.Bucket
	lane   storage.Lane
	left   int64 // tokens
	leased int64 // jobs that were
}

// next returns when there is a token that was not picked.
func (b *bucket) next(now time.Time) int64 {
	taken := b.Bucket
	taken.Take(now, b.Tokens(now)-b.left)
	return micros(taken.Next(now))
}

// tokens are the buckets that an exchange has looked at.
type tokens struct {
	*tx
	at      time.Time
	lineup  *lineup
	starts  starts
	buckets map[storage.Lane]*bucket
	berths  []*berth // that were passed over and do not wait, in no order meanwhile
}

// tokens returns the buckets as of a time, nil if no queue and no kind has any.
func (t *tx) tokens(l *lineup, at int64) (*tokens, error) {
	s, version, err := t.starts()
	if err != nil {
		return nil, err
	}
	if l.starts != version {
		l.restart(s)
		l.starts = version
	}
	if len(s) == 0 {
		return nil, nil
	}
	for _, g := range l.groups {
		g.waits.wake(g, at)
	}
	return &tokens{tx: t, at: time.UnixMicro(at), lineup: l, starts: s, buckets: map[storage.Lane]*bucket{}}, nil
}

// of returns the buckets of a lane.
func (k *tokens) of(name storage.Lane) (all []*bucket, err error) {
	for _, lane := range [...]storage.Lane{{Queue: name.Queue}, {Kind: name.Kind}} {
		s, ok := k.starts[lane]
		if !ok {
			continue
		}
		b := k.buckets[lane]
		if b == nil {
			var full int64
			if err := k.row(sqlBucket, []any{lane.Queue, lane.Kind}, &full); err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, err
			}
			b = &bucket{Bucket: storage.Bucket{Starts: s, Full: fromMicros(full)}, lane: lane}
			b.left = b.Tokens(k.at)
			k.buckets[lane] = b
		}
		all = append(all, b)
	}
	return all, nil
}

// last returns, of the buckets of a lane that have no token, the one that has one last,
// and when; nil if all have one.
func (k *tokens) last(all []*bucket) (last *bucket, at int64) {
	for _, x := range all {
		if x.left > 0 {
			continue
		}
		if next := x.next(k.at); last == nil || next > at {
			last, at = x, next
		}
	}
	return last, at
}

// pass passes over a lane, whose first job is known, if a bucket of it has no token.
func (k *tokens) pass(b *berth) (passed bool, err error) {
	if k == nil || !b.sure {
		return false, nil
	}
	all, err := k.of(b.name)
	if err != nil {
		return false, err
	}
	g := b.group
	last, until := k.last(all)
	if last != nil {
		heap.Remove(g, b.at)
		if g.queue != nil || g.kept != nil { // which look at all of their lanes
			k.berths = append(k.berths, b)
		} else {
			b.waitFor(last, until)
		}
	}
	for _, x := range all {
		if x.left > 0 {
			g.waits.follow(g, x.lane)
		}
	}
	return last != nil, nil
}

// pick counts a job of a lane that is about to be leased.
func (k *tokens) pick(b *berth) error {
	if k == nil {
		return nil
	}
	all, err := k.of(b.name)
	for _, x := range all {
		x.left--
	}
	return err
}

// next returns when the first job that was passed over can be leased, of those that count
// for a want with jobs left to lease; 0 if there is none. It puts the lanes back.
func (k *tokens) next(wants []storage.Want, left []int) (next int64, err error) {
	if k == nil {
		return 0, nil
	}
	takes := func(b *berth) bool { return k.lineup.takesMore(b, wants, left) }
	for _, b := range k.berths {
		k.lineup.put(b)
		if !takes(b) {
			continue
		}
		all, err := k.of(b.name)
		if err != nil {
			return 0, err
		}
		_, until := k.last(all)
		next = earlier(next, until)
	}
	k.berths = nil
	for _, g := range k.lineup.groups {
		if g.waits.settle(); g.open(left) < 0 {
			continue // and not look for a lane of which more is wanted
		}
		until, err := k.nextOf(g, takes)
		if err != nil {
			return 0, err
		}
		next = earlier(next, until)
	}
	return next, nil
}

// nextOf returns when the first job can be leased of the lanes of a group that wait, of
// those that count; 0 if there is none.
func (k *tokens) nextOf(g *group, takes func(*berth) bool) (int64, error) {
	for {
		w, b := g.waits.firstOf(takes)
		if w == nil {
			return 0, nil
		}
		all, err := k.of(b.name)
		if err != nil {
			return 0, err
		}
		last, until := k.last(all)
		if last == nil {
			return micros(k.at), nil
		}
		if last.lane == w.bucket && until == w.until {
			return until, nil
		}
		b.leave() // others have taken tokens meanwhile
		b.waitFor(last, until)
	}
}

// pay takes the tokens of jobs that were leased.
func (k *tokens) pay(jobs []storage.Leased) error {
	if k == nil {
		return nil
	}
	for i := range jobs {
		all, err := k.of(storage.Lane{Queue: jobs[i].Queue, Kind: jobs[i].Kind})
		if err != nil {
			return err
		}
		for _, b := range all {
			b.leased++
		}
	}
	for lane, b := range k.buckets {
		if b.leased == 0 {
			continue
		}
		b.Take(k.at, b.leased)
		if _, err := k.exec(sqlFill, lane.Queue, lane.Kind, micros(b.Full)); err != nil {
			return err
		}
		k.taken(b, k.at)
	}
	return nil
}

// giveBack gives back the tokens of a job that has not run.
func (t *tx) giveBack(lane int64) error {
	all, _, err := t.starts()
	if err != nil || len(all) == 0 {
		return err
	}
	name, err := t.laneName(lane)
	if err != nil {
		return err
	}
	for _, of := range [...]storage.Lane{{Queue: name.Queue}, {Kind: name.Kind}} {
		if s, ok := all[of]; ok {
			if _, err := t.exec(sqlGiveBack, of.Queue, of.Kind, s.Interval.Microseconds()); err != nil {
				return err
			}
			t.comeBack(of)
		}
	}
	return nil
}

// throttled reports whether a lane has a shared throttle, or may have.
func (t *tx) throttled(queue, kind string) bool {
	all, _, err := t.starts()
	if err != nil || len(all) == 0 {
		return err != nil
	}
	_, ofQueue := all[storage.Lane{Queue: queue}]
	_, ofKind := all[storage.Lane{Kind: kind}]
	return ofQueue || ofKind
}
