package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	sqlTotals = `SELECT lane, queue, kind, number, n, bytes FROM (
  SELECT lane, number, sum(n)::bigint AS n, coalesce(sum(bytes), 0)::bigint AS bytes FROM ` + counted + ` c GROUP BY lane, number) s` + ofLane
	// With the job that has failed last, if it is there.
	sqlLast = `WITH d AS MATERIALIZED (
  SELECT lane, at, job, xmin AS wrote FROM errand_delta WHERE at IS NOT NULL UNION ALL
  SELECT lane, at, job, wrote FROM errand_number WHERE at IS NOT NULL)
SELECT l.lane, l.number, l.at, j.* FROM (` + lastOf + `) l LEFT JOIN LATERAL (
  SELECT j.id, salt, created_at, ` + liveError + ` FROM errand_job j WHERE j.id = l.job
  UNION ALL SELECT j.id, salt, created_at, ` + endedError + ` FROM errand_finished j WHERE j.id = l.job
  UNION ALL SELECT j.id, salt, created_at, ` + endedError + ` FROM errand_dead j WHERE j.id = l.job) j ON true`
	sqlRunningBytes = `SELECT lane, sum(weight)::bigint FROM errand_job WHERE state = 3 GROUP BY lane`
	// From one priority to the next lower one: the jobs between are not looked at.
	sqlOldest = `WITH RECURSIVE top(lane, priority, due_at) AS (
  SELECT l.lane, j.priority, j.due_at FROM errand_lane l CROSS JOIN LATERAL (
    SELECT priority, due_at FROM errand_job WHERE state = 2 AND lane = l.lane ORDER BY priority DESC, due_at, id LIMIT 1) j
  UNION ALL SELECT t.lane, j.priority, j.due_at FROM top t CROSS JOIN LATERAL (
    SELECT priority, due_at FROM errand_job WHERE state = 2 AND lane = t.lane AND priority < t.priority ORDER BY priority DESC, due_at, id LIMIT 1) j)
SELECT lane, min(due_at) FROM top GROUP BY lane`
)

// Stats implements [storage.Store], in one round trip.
func (s *Store) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	var all map[int64]*storage.LaneStats
	err := s.read(ctx, func(b *pgx.Batch) {
		all = map[int64]*storage.LaneStats{}
		each(b, func(row pgx.CollectableRow) error {
			var lane, n, bytes int64
			var number int16
			var name storage.Lane
			err := row.Scan(&lane, &name.Queue, &name.Kind, &number, &n, &bytes)
			l := all[lane]
			if l == nil {
				l = &storage.LaneStats{Lane: name, Number: lane}
				all[lane] = l
			}
			l.Bytes += bytes
			addNumber(l, number, n)
			return err
		}, sqlTotals)
		each(b, func(row pgx.CollectableRow) error {
			var lane, at int64
			var number int16
			var job, created *int64
			var salt *int32
			var text []byte
			err := row.Scan(&lane, &number, &at, &job, &salt, &created, &text)
			switch l := all[lane]; {
			case l == nil:
			case number == succeededNumber:
				l.Succeeded = fromMicros(at)
			default:
				if l.Failed = fromMicros(at); job != nil {
					l.FailedJob, l.Error = jobID(*created, *salt, *job), string(text)
				}
			}
			return err
		}, sqlLast)
		ofLane := func(text string, set func(l *storage.LaneStats, n int64)) {
			each(b, func(row pgx.CollectableRow) error {
				var lane, n int64
				err := row.Scan(&lane, &n)
				if l := all[lane]; l != nil {
					set(l, n)
				}
				return err
			}, text)
		}
		ofLane(sqlRunningBytes, func(l *storage.LaneStats, n int64) { l.RunningBytes = n })
		ofLane(sqlOldest, func(l *storage.LaneStats, n int64) { l.OldestDue = fromMicros(n) })
	})
	if err != nil {
		return nil, err
	}
	out := make([]storage.LaneStats, 0, len(all))
	for _, l := range all {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b storage.LaneStats) int { return a.Compare(b.Lane) })
	return out, nil
}

// addNumber adds a number of the tables to those of a lane.
func addNumber(l *storage.LaneStats, number int16, n int64) {
	if number < 0 {
		if number == failuresNumber {
			l.Total.Failed += n
		}
		return
	}
	in := [...]*int64{
		scheduled: &l.Scheduled, ready: &l.Ready, running: &l.Running, done: &l.Done,
		cancelled: &l.Cancelled, dead: &l.Dead, blocked: &l.Blocked,
	}
	ended := [...]*int64{done: &l.Total.Done, cancelled: &l.Total.Cancelled, dead: &l.Total.Dead}
	from, to := int(number)>>5, int(number)&31
	if from == 0 {
		l.Total.Enqueued += n
	} else if from < len(in) {
		*in[from] -= n
	}
	if 0 < to && to < len(in) {
		*in[to] += n
	}
	if as := to &^ unkept; done <= as && as < len(ended) && from != to && from != elsewhere {
		*ended[as] += n
	}
}
