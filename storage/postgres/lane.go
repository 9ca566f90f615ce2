package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

// The second half of the key of an advisory lock is the number of an instance, -1 for who
// adds lanes, and -2 for who folds numbers.
const (
	sqlLockLanes = `SELECT pg_advisory_xact_lock($1::integer, -1)`
	sqlAddLanes  = `INSERT INTO errand_lane (lane, queue, kind)
SELECT coalesce((SELECT max(lane) FROM errand_lane), 0) + row_number() OVER (), f.queue, f.kind
FROM unnest($1::text[], $2::text[]) f(queue, kind)
WHERE NOT EXISTS (SELECT FROM errand_lane l WHERE l.queue = f.queue AND l.kind = f.kind)`
	sqlNewLanes = `SELECT lane, queue, kind FROM errand_lane WHERE lane > $1 ORDER BY lane`
)

// lanes are the lanes that the Store has seen: those with the numbers up to len(all).
type lanes struct {
	mu  sync.RWMutex
	all []storage.Lane // lane n is at n-1
	of  map[storage.Lane]int32
}

// number returns the number of a lane, 0 if it is not known.
func (l *lanes) number(lane storage.Lane) int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.of[lane]
}

// name returns the lane with a number, and an empty one if the Store has not seen it yet.
func (l *lanes) name(number int32) storage.Lane {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if number < 1 || int(number) > len(l.all) {
		return storage.Lane{}
	}
	return l.all[number-1]
}

// last returns the highest number that is known.
func (l *lanes) last() int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int32(len(l.all))
}

// wanted returns the lanes that one of wants matches, as of the lane with the number that
// it returns too.
func (l *lanes) wanted(wants []storage.Want) (matching []int32, last int32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i, lane := range l.all {
		for j := range wants {
			if wants[j].N > 0 && wants[j].Matches(lane.Queue, lane.Kind) {
				matching = append(matching, int32(i+1))
				break
			}
		}
	}
	return matching, int32(len(l.all))
}

// add takes note of a lane.
func (l *lanes) add(number int32, lane storage.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(number) != len(l.all)+1 {
		return // another call has read it too
	}
	if l.of == nil {
		l.of = map[storage.Lane]int32{}
	}
	l.all = append(l.all, lane)
	l.of[lane] = number
}

// readNew queues the reading of lanes that others have added.
func (s *Store) readNew(b *pgx.Batch) { newLanes(b, s.lanes.last(), s.lanes.add) }

// newLanes queues the reading of lanes with numbers after last.
func newLanes(b *pgx.Batch, last int32, fn func(number int32, lane storage.Lane)) {
	each(b, func(row pgx.CollectableRow) error {
		var number int32
		var lane storage.Lane
		if err := row.Scan(&number, &lane.Queue, &lane.Kind); err != nil {
			return err
		}
		fn(number, lane)
		return nil
	}, sqlNewLanes, last)
}

// know makes the lanes of jobs known: one round trip if there is a new one, else none.
func (s *Store) know(ctx context.Context, jobs []storage.NewJob) error {
	var queues, kinds []string
	unknown := map[storage.Lane]bool{}
	for i := range jobs {
		lane := storage.Lane{Queue: jobs[i].Queue, Kind: jobs[i].Kind}
		if !unknown[lane] && s.lanes.number(lane) == 0 {
			unknown[lane] = true
			queues, kinds = append(queues, lane.Queue), append(kinds, lane.Kind)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	last := s.lanes.last()
	var added []storage.Lane // taken note of once they are durable
	err := s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		added = nil
		b := &pgx.Batch{}
		b.Queue(sqlLockLanes, s.locks)
		b.Queue(sqlAddLanes, queues, kinds)
		newLanes(b, last, func(_ int32, lane storage.Lane) { added = append(added, lane) })
		return part(ctx, c, b)
	})
	if err != nil {
		return err
	}
	for i, lane := range added {
		s.lanes.add(last+1+int32(i), lane)
	}
	return nil
}
