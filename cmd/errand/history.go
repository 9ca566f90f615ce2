package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/perminute"
	"github.com/errandq/errand/storage"
)

// historyOf returns the periods of so long ago; nil for 0.
func historyOf(ctx context.Context, q *queue.Queue, ago time.Duration) ([]queue.Period, error) {
	if ago == 0 {
		return nil, nil
	}
	all, err := q.History(ctx, q.Clock().Now.Add(-ago))
	return append([]queue.Period{}, all...), err
}

// checkAgo refuses what no history goes back to.
func checkAgo(ago time.Duration) error {
	if ago < 0 || ago > storage.SamplesFor {
		return fmt.Errorf("--history %v: must be at most %v, which is what a file keeps", ago, storage.SamplesFor)
	}
	return nil
}

// rowOf is how long a time each row of a history of so long ago is about.
func rowOf(ago time.Duration) time.Duration {
	switch {
	case ago <= 2*time.Hour:
		return storage.SampleEach
	case ago <= 48*time.Hour:
		return time.Hour
	}
	return 6 * time.Hour
}

// printHistory writes what has become of the jobs of all lanes.
func (t *tool) printHistory(p *printer, all []queue.Period, ago time.Duration) {
	if ago == 0 {
		return
	}
	if len(all) == 0 {
		p.printf("\nnothing has happened in the last %s\n", lasting(ago))
		return
	}
	p.printf("\n")
	list := table{head: []string{"FROM", " ENQUEUED", " DONE", " FAILED", " DIED", " CANCELLED", " EXPIRED", " WAITED THEN", " DEAD THEN"}}
	var from time.Time
	var sum queue.LanePeriod
	end := func() {
		if !from.IsZero() {
			list.add(text(when(from)), number(sum.Enqueued), number(sum.Done), number(sum.Failed), number(sum.Died), number(sum.Cancelled), number(sum.Expired),
				number(sum.Ready), number(sum.Dead))
		}
	}
	for i := range all {
		first := !all[i].From.Truncate(rowOf(ago)).Equal(from)
		if first {
			end()
			from, sum = all[i].From.Truncate(rowOf(ago)), queue.LanePeriod{}
		}
		for j := range all[i].Lanes {
			l := &all[i].Lanes[j]
			sum.Enqueued, sum.Done, sum.Failed, sum.Died = sum.Enqueued+l.Enqueued, sum.Done+l.Done, sum.Failed+l.Failed, sum.Died+l.Died
			sum.Cancelled, sum.Expired = sum.Cancelled+l.Cancelled, sum.Expired+l.Expired
			if first {
				sum.Ready, sum.Dead = sum.Ready+l.Ready, sum.Dead+l.Dead
			}
		}
	}
	end()
	list.print(p, t.out)
}

// rateText returns how much there is a minute; "-" if that is not known.
func rateText(r *queue.Rate, of func(r *queue.Rate) float64) string {
	if r == nil {
		return "-"
	}
	return perminute.Text(of(r), func(n int64) string { return strconv.FormatInt(n, 10) })
}
