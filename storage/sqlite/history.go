package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	// The lanes beyond the first are the one with the next number. Times are left out: their sum is none.
	sqlSampled = `SELECT MIN(id / 32, 201) AS lane, id % 32 AS number, SUM(n) FROM main.errand_number
WHERE id >= 32 AND id % 32 NOT BETWEEN 16 AND 20 GROUP BY lane, number`
	sqlSampledRunning = `SELECT MIN(lane, 201) AS of, COUNT(*) FROM main.errand_job WHERE state = 3 GROUP BY of`
	sqlSampledOldest  = `SELECT MIN(o.lane, 201) AS of, MIN(n) FROM (` + sqlOldest + `) o JOIN main.errand_lane l ON l.lane = o.lane
WHERE NOT EXISTS (SELECT 1 FROM main.errand_hold h WHERE h.queue IN ('', l.queue) AND h.kind IN ('', l.kind)
AND (h.probe <> 0 OR h.until IS NULL OR h.until > ?1)) GROUP BY of`
	sqlPutSample      = `INSERT OR IGNORE INTO main.errand_sample (at, numbers) VALUES (?1, ?2)`
	// A sample that is not the first of its hour is deleted after a day.
	sqlThinSamples = `DELETE FROM main.errand_sample WHERE at < ?1 OR at < ?2 AND EXISTS
(SELECT 1 FROM main.errand_sample e WHERE e.at < errand_sample.at AND e.at >= errand_sample.at - errand_sample.at % 3600000000)`
	sqlShiftSamples = `DELETE FROM main.errand_sample WHERE at > ?1`
	sqlSamples      = `SELECT at, numbers FROM main.errand_sample WHERE at >=
COALESCE((SELECT MAX(at) FROM main.errand_sample WHERE at < ?1), ?1) ORDER BY at`
)

// sampleEach is [storage.SampleEach] in microseconds.
const sampleEach = int64(storage.SampleEach / time.Microsecond)

// sampling is a sample that a transaction writes if it raises the clock to the time of it.
type sampling struct {
	at      int64 // 0: there is none to be written
	numbers []byte
	err     error
}

// beginSample reads the numbers before a call that is given at changes any, if nobody has written
// yet in the SampleEach of at.
func (t *tx) beginSample(at int64) {
	of := at
	if at -= at % sampleEach; at <= t.meta.clock || at <= t.sampling.at || t.probes {
		return
	}
	if t.sampling.at == 0 { // else a call before it in the transaction has read them
		t.readSample(of)
	}
	t.sampling.at = at
}

func (t *tx) readSample(now int64) {
	if t.sampling.numbers = []byte{}; !t.store.marks.low.Load() {
		t.sampling.numbers, t.sampling.err = sampleNow(t, now)
	}
}

// flushSample writes the sample.
func (t *tx) flushSample() error {
	s := &t.sampling
	if s.at == 0 || s.at > t.meta.clock {
		return nil
	}
	if s.err != nil {
		return s.err
	}
	if _, err := t.exec(sqlPutSample, s.at, s.numbers); err != nil {
		return err
	}
	_, err := t.exec(sqlThinSamples, s.at-storage.SamplesFor.Microseconds(), s.at-storage.SamplesEachFor.Microseconds())
	return err
}

// sampleNow returns the numbers of a sample, as they are.
func sampleNow(db asker, at int64) ([]byte, error) {
	lanes := map[int64]*storage.LaneStats{}
	of := func(lane int64) *storage.LaneStats {
		if lanes[lane] == nil {
			lanes[lane] = &storage.LaneStats{}
		}
		return lanes[lane]
	}
	var lane, number, n int64
	err := db.each(sqlSampled, nil, []any{&lane, &number, &n}, func() { setNumber(of(lane), number, n) })
	if err == nil {
		err = db.each(sqlSampledRunning, nil, []any{&lane, &n}, func() { of(lane).Running = n })
	}
	if err == nil {
		err = db.each(sqlSampledOldest, []any{at}, []any{&lane, &n}, func() { of(lane).OldestDue = fromMicros(n) })
	}
	out := []byte{1}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		s := lanes[lane]
		addUp(s)
		out = binary.AppendUvarint(out, uint64(lane))
		for _, n := range sampledNumbers(&storage.SampledLane{
			Total: s.Total, Scheduled: s.Scheduled, Ready: s.Ready, Running: s.Running, Blocked: s.Blocked, Dead: s.Dead,
		}) {
			out = binary.AppendUvarint(out, uint64(max(*n, 0))) // below 0 they are only by damage
		}
		due := int64(0)
		if !s.OldestDue.IsZero() {
			due = micros(s.OldestDue)
		}
		out = binary.AppendUvarint(out, uint64(due))
	}
	return out, err
}

// sampledNumbers are the numbers of a lane in the order in which a sample has them.
func sampledNumbers(l *storage.SampledLane) []*int64 {
	t := &l.Total
	return []*int64{&t.Enqueued, &t.Done, &t.Cancelled, &t.Expired, &t.Dead, &t.Failed, &l.Scheduled, &l.Ready, &l.Running, &l.Blocked, &l.Dead}
}

// History implements [storage.Historian].
func (s *Store) History(ctx context.Context, since time.Time) (out []storage.Sample, err error) {
	err = s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
		var names []struct {
			Lane        int64
			Queue, Kind string
		}
		var rows []struct {
			At      int64
			Numbers []byte
		}
		if err := errors.Join(tx.Select(&names, sqlAllLanes), tx.Select(&rows, sqlSamples, micros(since))); err != nil {
			return err
		}
		of := map[int64]storage.Lane{}
		for _, n := range names {
			of[n.Lane] = storage.Lane{Queue: n.Queue, Kind: n.Kind}
		}
		out = make([]storage.Sample, len(rows))
		for i, r := range rows {
			if out[i], err = sampleOf(r.At, r.Numbers, of); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// sampleOf reads a row.
func sampleOf(at int64, numbers []byte, names map[int64]storage.Lane) (storage.Sample, error) {
	out := storage.Sample{At: fromMicros(at)}
	bad := func() (storage.Sample, error) {
		return out, fmt.Errorf("%w: the sample of %v cannot be read", storage.ErrCorrupt, out.At)
	}
	if out.Unknown = len(numbers) == 0; out.Unknown {
		return out, nil
	}
	if numbers[0] != 1 {
		return bad()
	}
	for rest := numbers[1:]; len(rest) > 0; {
		var lane, due int64
		var l storage.SampledLane
		for _, n := range append(append([]*int64{&lane}, sampledNumbers(&l)...), &due) {
			v, size := binary.Uvarint(rest)
			if size <= 0 || int64(v) < 0 {
				return bad()
			}
			*n, rest = int64(v), rest[size:]
		}
		if due != 0 {
			l.OldestDue = fromMicros(due)
		}
		if lane <= storage.SampledLanes {
			l.Lane = names[lane]
		}
		out.Lanes = append(out.Lanes, l)
	}
	return out, nil
}
