package engine

import (
	"runtime"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// mostAhead is how many jobs are leased ahead at most.
	mostAhead = 480
	// patience is how long a job that was leased ahead waits at least before it
	// is given back to others.
	patience = 100 * time.Millisecond
	// late is after what time the loop gets its turn back late. Go lets a goroutine run for 10 ms.
	late = 5 * time.Millisecond
	// restFor is for how many exchanges letOthersEnd rests.
	restFor = 100
)

// pace is how long handlers and exchanges have taken lately, as averages in
// which each new value counts an eighth. The zero value leases nothing ahead.
type pace struct {
	handler, exchange time.Duration
	heaviest          int  // of the jobs leased last, in bytes
	alone             bool // of the attempts that could, hardly any has ended during the last exchange
	rest              int  // exchanges during which letOthersEnd does not yield
}

func (p *pace) handled(d time.Duration) { p.handler = lately(p.handler, max(d, 1)) }

// exchanged notes an exchange. Meanwhile so many attempts have ended, and others have not.
func (p *pace) exchanged(d time.Duration, ended, others int) {
	p.exchange, p.rest = lately(p.exchange, d), max(p.rest-1, 0)
	if ended+others > 0 {
		p.alone = ended < (ended+others+7)/8
	}
}

func lately(average, d time.Duration) time.Duration {
	if average == 0 {
		return d
	}
	return average + (d-average)/8
}

// ahead returns how many jobs the runners get through while the store is asked
// for more: many if handlers are short, none if they are long.
func (p *pace) ahead(runners int) int {
	if p.handler == 0 {
		return 0
	}
	most := min(mostAhead, storage.LeaseBytes/max(p.heaviest, 1))
	return int(min(float64(runners)*float64(p.exchange)/float64(p.handler), float64(most)))
}

// stalls reports whether attempts take less time than an exchange, and cannot end during
// one.
func (p *pace) stalls() bool { return p.alone && p.handler > 0 && p.handler < p.exchange }

// weighed notes how heavy leased jobs are, and returns their weight together.
func (p *pace) weighed(jobs []storage.Leased) (bytes int) {
	heaviest := 0
	for i := range jobs {
		n := jobs[i].Bytes()
		bytes += n
		heaviest = max(heaviest, n)
	}
	if len(jobs) > 0 {
		p.heaviest = heaviest
	}
	return bytes
}

// patience returns how long a job that was leased ahead may wait. It was meant to
// start within about one exchange.
func (p *pace) patience() time.Duration { return max(patience, 2*p.exchange) }

// gather lets attempts end that are about to, so that their outcomes go in the next
// exchange. Where all goroutines share one processor the first outcome would go alone
// otherwise: the call of the store would run before the other runners, and keep the
// processor while the disk syncs.
//
// gather waits for no goroutine. It yields to those that are ready to run as long as that
// brings outcomes, until the jobs that were leased ahead have started and most have ended.
// It does not if attempts end during an exchange anyway, or take longer than one, nor when
// a heartbeat is due.
func (l *loop) gather(now time.Time) {
	for !l.asking() && l.shutdown.working() && l.ready.pace.stalls() && !reached(l.leases.heartbeatAt, now) {
		n := len(l.outcomes.waiting)
		if n == 0 || l.runners.busy == 0 || len(l.ready.waiting) == 0 && n >= len(l.leases.held) {
			return
		}
		runtime.Gosched()
		l.drain()
		if len(l.outcomes.waiting) == n {
			return
		}
		now = time.Now()
		l.startReady(now)
	}
}

// letOthersEnd yields once to the runners if an exchange is under way and handlers take far less
// time than that. The loop then takes several outcomes and starts several attempts in one step,
// where it would wake for each of them. Outcomes that have ended go with the next exchange anyway.
// Where other goroutines of the program keep the processors busy, the loop gets its turn back late,
// and yields no more for a while.
func (l *loop) letOthersEnd() {
	p := &l.ready.pace
	if !l.exchanges.busy || p.rest > 0 || p.handler == 0 || p.handler >= p.exchange/8 || len(l.runners.ended) > 0 {
		return
	}
	began := time.Now()
	runtime.Gosched()
	if time.Since(began) > late {
		p.rest = restFor
	}
}
