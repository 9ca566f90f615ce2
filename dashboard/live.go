package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// partHeader asks for what a page shows now, without its frame. It is a header, and no
	// parameter, so that an address means the same with and without it.
	partHeader = "Errand-Part"
	pageHeader = "Errand-Page"
	nowHeader  = "Errand-Now" // of the queue's clock
	ageHeader  = "Errand-Age" // of what the page shows, in ms

	// mostFragments is how many pages may be open at a time, and mostKept how many bytes of them are kept
	// beside the one rendered last. A fragment that nobody has asked for in keptFor is dropped.
	mostFragments = 1000
	mostKept      = 16 << 20
	keptFor       = time.Minute
	// renderEach is how often one is rendered at most, and the version is asked for. Rendering
	// takes at most the 100th part of the time; but each 5 s there may be one.
	renderEach = time.Second
	renderPart = 100
	renderMost = 5 * time.Second
	// blindEach is how often one is rendered if the store does not say when something was
	// committed, and unsureEach if the page cannot say when it changes without a commit.
	blindEach  = 5 * time.Second
	unsureEach = time.Minute
	// seenFor is for how long after it has asked a page counts as open.
	seenFor = 5 * time.Second
	// readsEach is how many reads open pages may cost in a second over time, beside the look that
	// they share. The other numbers are what one is taken to cost. After a commit the page of a job
	// is rendered half as often as it could be: the other half is for looks at the row of the job,
	// which tell soon whether it has to be rendered at once. What they compare beside the row is in
	// the look that all share.
	readsEach   = 4
	readsOfPage = 4
	readsOfJob  = 7
	readsOfRow  = 1
)

// ofLook are the pages that show a look, and cost no read of their own, or one.
var ofLook = map[string]bool{"": true, "lanes": true, "workers": true, "health": true}

// live keeps what open pages show. All viewers who may see the same share it.
type live struct {
	q    *errand.Queue
	seed maphash.Seed

	mu     sync.Mutex
	all    map[fragmentKey]*fragment
	behind int // how many open pages do not show the newest, and cost reads

	asking  sync.Mutex // while the version is asked for
	version int64
	fault   error
	asked   time.Time // for the version
	as      time.Time // what is of that version was the newest then
}

// fragmentKey is a hash of the page, its address and the role of who asks, as these may be long.
type fragmentKey [sha256.Size]byte

// fragment is what a page shows, without its frame.
type fragment struct {
	page  *page
	asked time.Time     // by a page that is open
	busy  chan struct{} // closed once it is rendered; nil: nobody renders it

	text string        // of head and main; empty: it is not kept
	tag  string        // empty: it was never rendered
	err  error         // of the last try
	at   time.Time     // of the last try
	each time.Duration // how long after that the next one may begin
	rows time.Time     // when the row of the job was looked at last since
	// version is that of the file before it was read.
	version int64
	freshness
	plausible bool      // the clock was
	checked   time.Time // when it was known last to be the newest

	print uint64 // of the job that it is of, see printOf; 0: it is of none
}

// freshness says when a page may show something else without a commit.
type freshness struct {
	until  time.Time // by the clock of this machine; zero: never
	due    time.Time // by that of the queue, which may be set; zero: never
	unsure bool      // it may be before
}

// passed reports whether there may be something else.
func (m *freshness) passed(clock errand.ClockState) bool {
	return !m.until.IsZero() && !time.Now().Before(m.until) || !m.due.IsZero() && !clock.Now.Before(m.due)
}

// settled says that a page shows only what is committed, whatever the time.
func (m *freshness) settled() { *m = freshness{} }

// till says after which time a page may show something else without a commit. The earliest counts.
func (m *freshness) till(d time.Duration) { m.until = earliest(m.until, time.Now().Add(d)) }

// tillClock is till for a time of the queue's clock. A time that is past has no effect.
func (x *request) tillClock(t time.Time) {
	if t.After(x.b.q.Clock().Now) {
		x.due = earliest(x.due, t)
	}
}

// tillHour is till for the next full hour, at which the lines of a day become others.
func (x *request) tillHour() { x.tillClock(x.b.q.Clock().Now.Truncate(time.Hour).Add(time.Hour)) }

func newLive(q *errand.Queue) live {
	return live{q: q, seed: maphash.MakeSeed(), all: map[fragmentKey]*fragment{}}
}

// now returns the version of the file, as of the last second, and when what is of that version was
// the newest. It is another version every 5 s if the store does not know it. A caller who goes
// spoils it for no other.
func (s *live) now(ctx context.Context) (v int64, as time.Time, err error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if began := time.Now(); began.Sub(s.asked) >= renderEach {
		ctx, stop := withTimeout(context.WithoutCancel(ctx), readFor)
		defer stop()
		v, known, err := version(ctx, s.q)
		s.as = began
		if !known {
			v = began.UnixNano() / int64(blindEach)
			s.as = time.Unix(0, v*int64(blindEach))
		}
		s.version, s.fault, s.asked = v, err, began
		s.count(v)
	}
	return s.version, s.as, s.fault
}

// count counts the open pages that do not show the newest.
func (s *live) count(v int64) {
	clock := s.q.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = 0
	for _, f := range s.all {
		if !ofLook[f.page.name] && time.Since(f.asked) < seenFor && !f.newest(v, clock) {
			s.behind++
		}
	}
}

// of returns the fragment of a request, which may be empty; nil if there are too many.
func (s *live) of(x *request) *fragment {
	k := fragmentKey(sha256.Sum256([]byte(strings.Join([]string{x.page.name, x.who.Role.String(), x.up, x.id, x.URL.Query().Encode()}, "\x00"))))
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[k]
	if f == nil {
		if len(s.all) >= mostFragments {
			s.drop(seenFor)
		}
		switch len(s.all) {
		case mostFragments:
			return nil
		case 0:
			time.AfterFunc(keptFor, s.sweep)
		}
		f = &fragment{page: x.page}
		s.all[k] = f
	}
	f.asked = time.Now()
	return f
}

// drop drops the fragments that nobody has asked for in a time.
func (s *live) drop(age time.Duration) {
	maps.DeleteFunc(s.all, func(_ fragmentKey, f *fragment) bool { return time.Since(f.asked) >= age })
}

// sweep drops old fragments until there are none.
func (s *live) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop(keptFor); len(s.all) > 0 {
		time.AfterFunc(keptFor/2, s.sweep)
	}
}

// trim drops texts that are too much, but for one: those go first that nobody has asked for the longest.
func (s *live) trim(but *fragment) {
	for {
		var last *fragment
		n := 0
		for _, f := range s.all {
			n += len(f.text)
			if f != but && f.text != "" && (last == nil || f.asked.Before(last.asked)) {
				last = f
			}
		}
		if n <= mostKept || last == nil {
			return
		}
		last.text = ""
	}
}

// newest reports whether a fragment shows what there is, as of a version of the file.
func (f *fragment) newest(v int64, clock errand.ClockState) bool {
	return f.version == v && (f.tag != "" || f.err != nil) && f.plausible == clock.Plausible && !f.passed(clock)
}

// wait returns how long after its last try a fragment is rendered again at the earliest, so that all
// pages together cost no more reads than they may.
func (s *live) wait(f *fragment, v int64) time.Duration {
	reads := readsOfPage
	switch {
	case ofLook[f.page.name]:
		reads = 0
	case f.print != 0 && f.version == v:
		reads = readsOfJob
	case f.print != 0:
		reads = 2 * readsOfJob
	}
	return max(f.each, s.spread(reads))
}

// spread returns how often a page may cost so many reads.
func (s *live) spread(reads int) time.Duration {
	return time.Duration(reads*max(s.behind, 1)) * time.Second / readsEach
}

// looks reports whether it is time to look at the row of a job.
func (s *live) looks(f *fragment) bool {
	return f.print != 0 && f.err == nil && min(time.Since(f.at), time.Since(f.rows)) >= max(renderEach, s.spread(2*readsOfRow))
}

// printOf returns a number that changes with the row of a job and, while it waits, with the holds of its
// lane and whether a worker takes it, as a look has them, which may be nil. 0: it is not known.
func (s *live) printOf(j *errand.JobInfo, l *look) uint64 {
	var holds []errand.HoldState
	served := false
	if l != nil && (j.State == errand.Ready || j.State == errand.Scheduled) {
		holds = slices.DeleteFunc(l.holds(), func(h errand.HoldState) bool { return !h.Includes(j.Queue, j.Kind) })
		served = l.served(j.Queue, j.Kind)
	}
	b, err := json.Marshal([]any{j, holds, served})
	if err != nil {
		return 0
	}
	return maphash.Bytes(s.seed, b)
}

// tagOf returns what changes with a text, but not with the ages in it, which browsers count.
func (s *live) tagOf(text string) string {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for text != "" {
		const age = `<span class="ago">`
		before, after, found := strings.Cut(text, age)
		_, _ = h.WriteString(before) // it cannot fail
		if text = after; found {
			text = text[max(strings.IndexByte(text, '<'), 0):]
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// earliest returns the earlier of two times of which zero is never.
func earliest(a, b time.Time) time.Time {
	if laterDue(a, b) > 0 {
		return b
	}
	return a
}
