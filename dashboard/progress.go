package dashboard

import (
	"context"
	"maps"
	"time"

	"github.com/errandq/errand"
)

// farEach is how often workers are asked for while somebody looks at jobs that say how far they
// have got, as that is not committed.
const farEach = 2 * time.Second

// askAgain returns after how long workers are asked for again.
func (l *look) askAgain() time.Duration {
	for i := range l.workers {
		if len(l.workers[i].Progress) > 0 {
			return farEach
		}
	}
	return askEach
}

// far finds out how far jobs have got whose pages are looked at. It belongs to the loop of the hub.
type far struct {
	asked time.Time
	each  time.Duration
	runs  map[errand.ID]bool      // the jobs that run, as far as viewers look at them
	said  map[errand.ID]time.Time // when they have said so, as of the last time
}

// note takes notice of the row of a job that is looked at.
func (f *far) note(j *errand.JobInfo) {
	if j.State != errand.Running {
		delete(f.runs, j.ID)
		return
	}
	if f.runs == nil {
		f.runs = map[errand.ID]bool{}
	}
	f.runs[j.ID] = true
}

// turn tells viewers of jobs that have got further. Workers are asked for every 2 s while one of
// these jobs says how far it has got, else every 10 s.
func (f *far) turn(ctx context.Context, q *errand.Queue, all []*viewer) {
	jobs := map[errand.ID][]*viewer{}
	for _, v := range all {
		if f.runs[v.job] {
			jobs[v.job] = append(jobs[v.job], v)
		}
	}
	maps.DeleteFunc(f.runs, func(id errand.ID, _ bool) bool { return jobs[id] == nil })
	if len(jobs) == 0 || time.Since(f.asked) < f.each {
		return
	}
	f.asked, f.each = time.Now(), askEach
	workers, err := q.Workers(ctx)
	if err != nil {
		return // the pages say why
	}
	was := f.said
	f.said = map[errand.ID]time.Time{}
	for i := range workers {
		for _, p := range workers[i].Progress {
			viewers := jobs[p.Job]
			if viewers == nil {
				continue
			}
			if f.each, f.said[p.Job] = farEach, p.At; was[p.Job].Equal(p.At) {
				continue
			}
			for _, v := range viewers {
				v.owed = true
			}
		}
	}
}
