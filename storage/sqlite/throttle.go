package sqlite

import (
	"container/heap"
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	sqlBucket     = `SELECT full FROM errand_bucket WHERE queue = ?1 AND kind = ?2`
	sqlFill       = `INSERT INTO errand_bucket (queue, kind, full) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET full = excluded.full`
	sqlGiveBack   = `UPDATE errand_bucket SET full = full - ?3 WHERE queue = ?1 AND kind = ?2`
	sqlDropBucket = `DELETE FROM errand_bucket WHERE queue = ?1 AND kind = ?2`
)

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

// starts returns the shared throttles as the transaction has left them.
func (t *tx) starts() (starts, error) {
	if !t.reset {
		t.store.cache.mu.RLock()
		defer t.store.cache.mu.RUnlock()
		return t.store.cache.starts, nil
	}
	all, err := t.settings()
	return all.starts(), err
}

// bucket is that of a queue or kind, for one exchange.
type bucket struct {
	storage.Bucket
	left   int64 // tokens
	leased int64 // jobs that were
}

// tokens are the buckets that an exchange has looked at.
type tokens struct {
	*tx
	at      time.Time
	starts  starts
	buckets map[storage.Lane]*bucket
	berths  []*berth // that were passed over, in no order meanwhile
}

// tokens returns the buckets as of a time, nil if no queue and no kind has any.
func (t *tx) tokens(at int64) (*tokens, error) {
	s, err := t.starts()
	if err != nil || len(s) == 0 {
		return nil, err
	}
	return &tokens{tx: t, at: fromMicros(at), starts: s, buckets: map[storage.Lane]*bucket{}}, nil
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
			b = &bucket{Bucket: storage.Bucket{Starts: s, Full: fromMicros(full)}}
			b.left = b.Tokens(k.at)
			k.buckets[lane] = b
		}
		all = append(all, b)
	}
	return all, nil
}

// pass passes over a lane, whose first job is known, if a bucket of it has no token.
func (k *tokens) pass(b *berth) (passed bool, err error) {
	if k == nil || !b.sure {
		return false, nil
	}
	all, err := k.of(b.name)
	for _, x := range all {
		if passed = x.left <= 0; passed {
			heap.Remove(b.group, b.at)
			k.berths = append(k.berths, b)
			break
		}
	}
	return passed, err
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
func (k *tokens) next(l *lineup, wants []storage.Want, left []int) (next int64, err error) {
	if k == nil {
		return 0, nil
	}
	for _, b := range k.berths {
		l.put(b)
		if !l.takesMore(b, wants, left) {
			continue
		}
		all, err := k.of(b.name)
		if err != nil {
			return 0, err
		}
		last := k.at
		for _, x := range all {
			taken := x.Bucket
			taken.Take(k.at, x.Tokens(k.at)-x.left)
			if at := taken.Next(k.at); at.After(last) {
				last = at
			}
		}
		next = earlier(next, micros(last))
	}
	k.berths = nil
	return next, nil
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
	}
	return nil
}

// giveBack gives back the tokens of a job that has not run.
func (t *tx) giveBack(lane int64) error {
	all, err := t.starts()
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
		}
	}
	return nil
}

// throttled reports whether a lane has a shared throttle, or may have.
func (t *tx) throttled(queue, kind string) bool {
	all, err := t.starts()
	if err != nil || len(all) == 0 {
		return err != nil
	}
	_, ofQueue := all[storage.Lane{Queue: queue}]
	_, ofKind := all[storage.Lane{Kind: kind}]
	return ofQueue || ofKind
}
