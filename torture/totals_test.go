//go:build unix

package torture_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// total is one of the totals of a queue, of all its kinds.
type total struct{ queue, of string }

// span is what a total may be, as the ledger and the rows have it. The ends are the same
// unless an answer was lost and the row of the job is gone.
type span struct{ least, most int64 }

// sums are what all totals may be.
type sums map[total]span

func (s sums) add(queue, of string, least, most int) {
	k := total{queue, of}
	s[k] = span{s[k].least + int64(least), s[k].most + int64(most)}
}

// totals compares the totals of the file with the ledger and the rows. ticks are the jobs of
// ticks that have no row.
func (l *ledger) totals(t *testing.T, f *findings, path string, rows []row, ticks map[int64]bool) {
	t.Helper()
	got, err := readTotals(path)
	if err != nil {
		f.broken = append(f.broken, fmt.Sprint("reading the totals: ", err))
		return
	}
	want := l.sums(rows, ticks)
	for k := range got {
		want.add(k.queue, k.of, 0, 0)
	}
	for k, s := range want {
		f.unsure += s.most - s.least
		text := fmt.Sprintf("total of %s in queue %s: %d, want %d to %d", k.of, k.queue, got[k], s.least, s.most)
		switch {
		case got[k] < s.least:
			f.lost = append(f.lost, text)
		case got[k] > s.most:
			f.unexpected = append(f.unexpected, text)
		}
	}
}

// readTotals reads the totals as any program that asks for them, and leaves the file as it is.
func readTotals(path string) (map[total]int64, error) {
	ctx := context.Background()
	q, err := errand.Open(ctx, path, &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}})
	if err != nil {
		return nil, err
	}
	defer q.Close()
	lanes, err := q.Totals(ctx)
	out := map[total]int64{}
	for _, t := range lanes {
		for of, n := range map[string]int64{
			"enqueued": t.Enqueued, "done": t.Done, "cancelled": t.Cancelled, "expired": t.Expired, "dead": t.Dead,
			"evicted": t.Evicted, "dead_evicted": t.DeadEvicted,
		} {
			out[total{t.Queue, of}] += n
		}
	}
	return out, err
}

// sums adds up what is to be in the totals. No job has a window or a cap: none expires or is
// evicted.
func (l *ledger) sums(rows []row, ticks map[int64]bool) sums {
	queues, known, byKey := map[int64]string{}, map[int64]bool{}, map[int64]*row{}
	for n, id := range l.ids {
		queues[id.Key()], known[id.Key()] = l.tried[n], true
	}
	for _, id := range l.ticks {
		known[id.Key()] = true
	}
	for key := range ticks {
		known[key] = true
	}
	for i := range rows {
		r := &rows[i]
		byKey[r.id.Key()] = r
		if queue := l.tried[r.n]; queue != "" {
			queues[r.id.Key()] = queue
		}
	}
	out := sums{}
	for key, e := range l.jobs {
		r := byKey[key]
		e.count(out, r, cmp.Or(queues[key], e.queue(), "default"), known[key] || r != nil || e.answered())
	}
	return out
}

// answered reports whether anything that was done to the job was acknowledged, so that there
// must have been one.
func (e *entry) answered() bool {
	return e.last() != nil || e.redrives.acked+e.cancels.acked+e.purges.acked > 0
}

// queue returns the one in which the job was first leased; empty if it never was.
func (e *entry) queue() string {
	for _, token := range e.tokens() {
		if s := e.leases[token]; s.queue != "" {
			return s.queue
		}
	}
	return ""
}

// count adds what a job is to be in the totals. r is nil if it has no row. exists is false if it
// may be that it was never enqueued.
func (e *entry) count(out sums, r *row, queue string, exists bool) {
	least := 0
	if exists {
		least = 1
	}
	out.add(queue, "enqueued", least, 1)
	e.countDeaths(out, r)
	switch {
	case r == nil:
		e.countGone(out, queue, exists)
	case r.state == done:
		out.add(r.queue, "done", 1, 1)
	case r.state == cancelled:
		out.add(r.queue, "cancelled", 1, 1)
	}
}

// countDeaths adds the deaths of a job: those that were acknowledged, and of the others as many
// as there must and can have been, given that each redrive but one to come is of a death.
func (e *entry) countDeaths(out sums, r *row) {
	var sure, unsure []*leaseEntry
	for _, s := range e.leases {
		switch isDeath := func(i intent) bool { return i.outcome == storage.OutcomeDead }; {
		case s.acked && isDeath(s.meant()), r != nil && r.state == dead && r.token == s.token:
			sure = append(sure, s)
		case slices.ContainsFunc(s.intents, isDeath):
			unsure = append(unsure, s)
		}
	}
	least, most := e.redrives.acked, e.redrives.begun
	if r != nil && r.state == dead {
		least++
	}
	if r == nil || r.state == dead {
		most++
	}
	for _, s := range sure {
		out.add(s.queue, "dead", 1, 1)
	}
	for _, s := range unsure {
		switch {
		case most <= len(sure):
		case least >= len(sure)+len(unsure):
			out.add(s.queue, "dead", 1, 1)
		default:
			out.add(s.queue, "dead", 0, 1)
		}
	}
}

// countGone adds the end of a job without a row. If the job exists it had one, or died and was
// purged.
func (e *entry) countGone(out sums, queue string, exists bool) {
	ways := map[total]bool{} // true: acknowledged
	may := func(of string, sure bool) { ways[total{queue, of}] = ways[total{queue, of}] || sure }
	for _, token := range e.tokens() {
		s := e.leases[token]
		queue = cmp.Or(s.queue, queue)
		for i, meant := range s.intents {
			switch last := i == len(s.intents)-1; meant.outcome {
			case storage.OutcomeDone:
				may("done", s.acked && last)
			case storage.OutcomeCancelled:
				may("cancelled", s.acked && last)
			}
		}
	}
	if e.cancels.begun > 0 { // in the queue of its last lease: no test cancels a job that a redrive has moved
		may("cancelled", e.cancels.acked > 0)
	}
	const purged = "purged" // there is no such total
	if e.purges.begun > 0 {
		may(purged, e.purges.acked > 0)
	}
	if slices.Contains(slices.Collect(maps.Values(ways)), true) {
		maps.DeleteFunc(ways, func(_ total, sure bool) bool { return !sure })
	}
	least := 0
	if exists && len(ways) == 1 {
		least = 1
	}
	for k := range ways {
		if k.of != purged {
			out.add(k.queue, k.of, least, 1)
		}
	}
}

// mustTotal fails the test unless the totals say that each job of the books was enqueued and is
// done, and no more. Programs that keep no finished jobs leave no other trace of some.
func (r *books) mustTotal(path string) {
	r.t.Helper()
	got, err := readTotals(path)
	if err != nil {
		r.t.Fatal(err)
	}
	sum := map[string]int64{}
	for k, n := range got {
		if n != 0 {
			sum[k.of] += n
		}
	}
	if n := int64(len(r.jobs)); !maps.Equal(sum, map[string]int64{"enqueued": n, "done": n}) {
		r.t.Errorf("%d jobs are done, and the totals are %v", n, sum)
	}
}

// mustTotal fails the test unless the totals say that there were so many deaths, and a notice of
// each.
func (d *deaths) mustTotal(notices int) {
	d.t.Helper()
	lanes, err := d.q.Totals(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var dead, enqueued int64
	for _, t := range lanes {
		if t.Queue == noticeQueue {
			enqueued += t.Enqueued
		} else {
			dead += t.Dead
		}
	}
	if n := int64(notices); dead != n || enqueued != n {
		d.t.Errorf("the totals are %d deaths and %d notices: want %d", dead, enqueued, n)
	}
}
