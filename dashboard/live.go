package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"html/template"
	"net/http"
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

	// mostFragments is how many fragments are kept: of others those go first that nobody has
	// asked for the longest.
	mostFragments = 64
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
	// readsEach is how many reads fragments may cost in a second over time, beside the look that
	// they share. What is not needed is kept for later, up to readsKept.
	readsEach, readsKept = 4, 12
	// rowOld is after how long the page of a job is rendered after a commit though the job is the
	// same: what else it shows may have changed.
	rowOld = 2 * time.Minute
	// fewReads is what pages cost that readsOf has not.
	fewReads = 2
)

// ofLook are the pages that show a look, and cost no read of their own, or one.
var ofLook = map[string]bool{"": true, "lanes": true, "workers": true, "health": true}

// readsOf is about how many reads pages cost. Topics and a search cost one more for each row.
var readsOf = map[string]float64{"job": 7, "schedule": 3, "topics": 4, "topic": 4, "subscription": 7, "endpoints": 4, "endpoint": 32, "search": 7, "lane": 5}

// live keeps what open pages show. All viewers who may see the same share it.
type live struct {
	q    *errand.Queue
	seed maphash.Seed

	mu     sync.Mutex
	all    map[fragmentKey]*fragment
	room   float64 // for reads, see readsKept
	filled time.Time

	asking  sync.Mutex // while the version is asked for
	version int64
	fault   error
	asked   time.Time // for the version
}

type fragmentKey struct {
	page, id, up, query string
	role                Role
}

// fragment is what a page shows, without its frame.
type fragment struct {
	asked time.Time     // by a page that is open
	busy  chan struct{} // closed once it is rendered; nil: nobody renders it

	head, main template.HTML // empty: it was never rendered
	tag        string
	err        error         // of the last try
	at         time.Time     // of the last try
	each       time.Duration // how long after that the next one may begin
	made       time.Time     // of the last one that has rendered it
	look       time.Time     // of the look that it shows; zero: of none
	version    int64         // of the file, before it was read
	until      time.Time     // when it may show something else without a commit; zero: never
	checked    time.Time     // when it was known last to be the newest

	print uint64 // of the job that it is of, see printOf; 0: it is of none
}

func newLive(q *errand.Queue) live {
	return live{q: q, seed: maphash.MakeSeed(), all: map[fragmentKey]*fragment{}, room: readsKept, filled: time.Now()}
}

// now returns the version of the file, as of the last second. It is another one every 5 s if the
// store does not know it.
func (s *live) now(ctx context.Context) (int64, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if time.Since(s.asked) >= renderEach {
		v, known, err := version(ctx, s.q)
		if !known {
			v = time.Now().UnixNano() / int64(blindEach)
		}
		s.version, s.fault, s.asked = v, err, time.Now()
	}
	return s.version, s.fault
}

// of returns the fragment of a request, which may be empty.
func (s *live) of(x *request) *fragment {
	k := fragmentKey{x.page.name, x.id, x.up, x.URL.RawQuery, x.who.Role}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[k]
	if f == nil {
		f = &fragment{}
		for len(s.all) >= mostFragments {
			var last fragmentKey
			for k, o := range s.all {
				if l := s.all[last]; l == nil || o.asked.Before(l.asked) {
					last = k
				}
			}
			delete(s.all, last)
		}
		s.all[k] = f
	}
	f.asked = time.Now()
	return f
}

// newest reports whether a fragment shows what there is, as of a version of the file.
func (f *fragment) newest(v int64) bool { return f.version == v && f.holds() }

// holds reports whether a fragment shows what there is but for what was committed since.
func (f *fragment) holds() bool {
	return f.main != "" && f.err == nil && (f.until.IsZero() || time.Now().Before(f.until))
}

// looks reports whether nothing but the job itself is to be looked at, and the page is rendered only
// if that has changed.
func (f *fragment) looks() bool {
	return f.print != 0 && f.holds() && time.Since(f.made) < rowOld
}

// costs returns about how many reads it costs to render a fragment, or to see that it is the newest.
func (f *fragment) costs(page string) float64 {
	switch {
	case ofLook[page]:
		return 0
	case f.looks():
		return 1
	}
	return cmp.Or(readsOf[page], fewReads)
}

// affords reports whether there is room for what a fragment costs, beside those that have waited
// longer. If so, the room is taken.
func (s *live) affords(f *fragment, page string, v int64) bool {
	now, cost := time.Now(), f.costs(page)
	s.room = min(s.room+readsEach*now.Sub(s.filled).Seconds(), readsKept)
	s.filled = now
	others := 0.0
	for k, o := range s.all {
		if o.busy == nil && o.at.Before(f.at) && now.Sub(o.asked) < seenFor && !o.newest(v) {
			others += o.costs(k.page)
		}
	}
	if cost > 0 && s.room <= others {
		return false
	}
	s.room -= cost
	return true
}

// printOf returns a number that changes with a job.
func (s *live) printOf(j *errand.JobInfo) uint64 {
	b, err := json.Marshal(j)
	if err != nil {
		return 0
	}
	return maphash.Bytes(s.seed, b)
}

// errSame is returned by a page that shows what it has shown.
var errSame = errors.New("the same")

// tagOf returns what changes with a fragment, but not with the ages in it, which browsers count.
func (s *live) tagOf(f *fragment) string {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, text := range []string{string(f.head), string(f.main)} {
		for text != "" {
			const age = `<span class="ago">`
			before, after, found := strings.Cut(text, age)
			_, _ = h.WriteString(before) // it cannot fail
			if text = after; found {
				text = text[max(strings.IndexByte(text, '<'), 0):]
			}
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// asks reports whether a request is for what a page shows now.
func (x *request) asks() bool {
	return x.Header.Get(partHeader) != "" && x.page.lives() && x.URL.Query().Get("format") == ""
}

// lives reports whether a page changes by itself.
func (p *page) lives() bool { return !p.posts && !p.still }

// tell answers an open page: what it shows now, or that this is what it has.
func (x *request) tell(w http.ResponseWriter) {
	s, f := &x.b.live, x.b.live.of(x)
	shared, stop := withTimeout(context.WithoutCancel(x.Context()), readFor) // others wait for it
	defer stop()
	v, err := s.now(shared)
	if err != nil && !ofLook[x.page.name] { // a look says since when it is the last one
		x.fail(w, err)
		return
	}
	s.mu.Lock()
	switch {
	case f.busy != nil:
		busy := f.busy
		s.mu.Unlock()
		select {
		case <-busy:
		case <-x.Context().Done():
			return
		}
		s.mu.Lock()
	case err == nil && f.newest(v):
		if f.checked = time.Now(); !f.look.IsZero() {
			x.b.looks.current(v)
		}
	case time.Since(f.at) < f.each:
	case s.affords(f, x.page.name, v):
		busy := make(chan struct{})
		if f.busy = busy; f.looks() {
			x.print = f.print
		}
		s.mu.Unlock()
		x.renew(shared, f, v)
		s.mu.Lock()
	}
	shown := *f
	s.mu.Unlock()
	if shown.err != nil {
		x.fail(w, shown.err)
		return
	}
	head := w.Header()
	head.Set("Vary", partHeader)
	head.Set(pageHeader, x.page.name)
	head.Set(nowHeader, x.b.q.Clock().Now.UTC().Format(time.RFC3339Nano))
	head.Set(ageHeader, strconv.FormatInt(time.Since(shown.checked).Milliseconds(), 10))
	if shown.main == "" { // there is no room for it yet
		head.Del(ageHeader)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	head.Set("ETag", `"`+shown.tag+`"`)
	if strings.Contains(x.Header.Get("If-None-Match"), shown.tag) { // proxies that compress add to it
		w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(shown.head + shown.main)) // nobody is left who could be told
}

// renew renders a fragment anew. It belongs to nobody: a viewer who goes away spoils it for no
// other.
func (x *request) renew(ctx context.Context, f *fragment, v int64) {
	s := &x.b.live
	defer func() { // also after a panic
		s.mu.Lock()
		defer s.mu.Unlock()
		close(f.busy)
		f.busy = nil
	}()
	y := *x
	y.Request, y.version, y.open = x.WithContext(ctx), v, true
	begun := time.Now()
	c, err := x.page.read(&y)
	if err == nil && c.to != "" {
		err = &refusal{status: http.StatusNotFound, text: "This page leads to another one now."}
	}
	if err == nil {
		err = y.fill(f, y.frame(c), begun)
	}
	x.b.looks.met(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.each = min(max(renderEach, time.Since(begun)*renderPart), renderMost)
	switch {
	case err == errSame: //nolint:errorlint // it is returned as it is
		f.version, f.at, f.checked = v, begun, begun
		return
	case err != nil:
		f.err, f.at = err, time.Now()
	}
	if x.print != 0 { // it has cost more than to look
		s.room -= readsOf[x.page.name] - 1
	}
}

// fill renders the content of a page into its fragment.
func (x *request) fill(f *fragment, frame *layout, begun time.Time) error {
	var b bytes.Buffer
	render := func(name string) (template.HTML, error) {
		b.Reset()
		err := x.page.template.ExecuteTemplate(&b, name, frame)
		return template.HTML(b.String()), err // as the template has escaped it
	}
	n := fragment{at: begun, each: renderEach, made: begun, checked: begun, version: x.version, until: x.moment(), print: x.print}
	var err error
	if n.main, err = render("main"); err != nil {
		return err
	}
	if n.head, err = render("head"); err != nil {
		return err
	}
	if x.seen != nil {
		n.look, n.checked = x.seen.at, x.seen.at
	}
	s := &x.b.live
	n.tag = s.tagOf(&n)
	frame.Body, frame.Tag = n.main, n.tag
	s.mu.Lock()
	defer s.mu.Unlock()
	n.asked, n.busy = f.asked, f.busy
	*f = n
	return nil
}

// serveKept writes a page of a look if it was shown less than a second ago, and reports whether it
// has.
func (x *request) serveKept(w http.ResponseWriter) bool {
	if !ofLook[x.page.name] || x.URL.Query().Get("format") != "" {
		return false
	}
	l, err := x.look()
	if err != nil {
		return false
	}
	f := x.b.live.of(x)
	x.b.live.mu.Lock()
	shown := *f
	x.b.live.mu.Unlock()
	if shown.err != nil || shown.main == "" || !shown.look.Equal(l.at) || time.Since(shown.at) >= renderEach {
		return false
	}
	frame := x.layout(x.page.title, nil)
	frame.Body, frame.Tag = shown.main, shown.tag
	x.write(w, http.StatusOK, x.page.template, frame)
	return true
}

// till says when, by the clock of this machine, a page may show something else without a commit; zero
// is never. The earliest counts. Of a page that shows a look, it is beside what the look says.
func (x *request) till(t time.Time) {
	x.said = true
	x.until = earliest(x.until, t)
}

// tillClock is till for a time of the queue's clock. A time that is past has no effect.
func (x *request) tillClock(t time.Time) {
	if now := x.b.q.Clock().Now; t.After(now) {
		x.till(time.Now().Add(t.Sub(now)))
	}
}

// moment returns when the page may show something else without a commit; zero is never.
func (x *request) moment() time.Time {
	switch {
	case x.seen != nil:
		return earliest(x.until, x.seen.moment())
	case x.said || x.page.stored:
		return x.until
	}
	return time.Now().Add(unsureEach)
}

// earliest returns the earlier of two times of which zero is never.
func earliest(a, b time.Time) time.Time {
	if laterDue(a, b) > 0 {
		return b
	}
	return a
}
