package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	sampleEach = 10 * time.Second
	// ofHour is how many samples are kept.
	ofHour = int(time.Hour / sampleEach)
	// gap is how far apart samples are that nothing is said between: the program or the machine
	// slept.
	gap = 3 * sampleEach
)

// sample is what the numbers of a file were at a moment. They are totals, so of all processes.
type sample struct {
	at      time.Time // of this machine
	oldest  time.Duration
	running int64
	ended   int64 // done ever
	failed  int64 // ever, see [sums]
}

// hour keeps the samples of the last hour.
type hour struct {
	mu   sync.Mutex
	ring [ofHour]sample
	n    int // ever added
}

func (h *hour) add(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring[h.n%ofHour] = s
	h.n++
}

// all returns the samples, the oldest first.
func (h *hour) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n <= ofHour {
		return append([]sample(nil), h.ring[:h.n]...)
	}
	at := h.n % ofHour
	return append(append(make([]sample, 0, ofHour), h.ring[at:]...), h.ring[:at]...)
}

// watch takes the samples until the queue is closed. It reads at most every 10 s, and only if
// something was committed since.
func (s *looks) watch(closing *errand.Subscription) {
	defer close(s.over)
	t := time.NewTicker(sampleEach)
	defer t.Stop()
	for {
		ctx, stop := withTimeout(context.Background(), readFor)
		if l, err := s.fresh(ctx, false); err == nil {
			s.hour.add(l.sample(s.q.Clock().Now))
		}
		stop()
		for waits := true; waits; {
			select {
			case <-t.C:
				waits = false
			case _, open := <-closing.Events(): // a few come nevertheless
				if !open {
					return
				}
			}
		}
	}
}

// closing returns a subscription for its end, which is the end of the queue. Hardly any event is of
// such a kind.
func closing(q *errand.Queue) (*errand.Subscription, error) {
	return q.Subscribe(context.Background(), errand.EventFilter{Kind: "errand/none"}, 1)
}

// sample returns the numbers of a look. The age of the oldest job that is due is that of now.
func (l *look) sample(now time.Time) sample {
	shown := *l
	shown.clock.Now = now
	sums, out := l.sums(), sample{at: time.Now()}
	if oldest := shown.oldest(); !oldest.IsZero() {
		out.oldest = max(now.Sub(oldest), 0)
	}
	out.running, out.ended, out.failed = sums.Running, sums.Ended, sums.Failed
	return out
}

// rateOver is the time over which numbers a minute are counted.
const rateOver = time.Minute

// rate returns how much a total has risen a minute at sample i; known is false if there are no
// samples of the whole minute before it: of a part, a burst would look like many times as much.
func rate(all []sample, i int, of func(*sample) int64) (perMinute float64, known bool) {
	from := i
	for from > 0 && all[from].at.Sub(all[from-1].at) < gap && all[i].at.Sub(all[from].at) < rateOver {
		from--
	}
	d := all[i].at.Sub(all[from].at)
	if d < rateOver-sampleEach/2 {
		return 0, false
	}
	return float64(max(of(&all[i])-of(&all[from]), 0)) / d.Minutes(), true
}
