package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// mostViewers is how many streams there are at most, and mostOfOne how many of one name
	// and address as soon as half of these are taken. Others ask every 5 s.
	mostViewers = 256
	mostOfOne   = 16
	// turnEach is how often the hub looks for changes while there are viewers.
	turnEach = time.Second
	// blindEach is after how many turns viewers are told if the store does not say whether
	// anything was committed.
	blindEach = 5
	// mostTold is how many viewers of pages that cost reads of their own are told in a turn.
	mostTold = 4
	// readsOfJobs is how many reads those pages and the rows below may cost in a turn if all pages
	// are of jobs, and readsOfAll if they are not: others show a look, which costs up to four
	// itself. What is not needed is kept for later turns, up to readsKept.
	readsOfJobs, readsOfAll, readsKept = 9, 6, 28
	// mostRows is how many jobs are asked for in a turn: each is a read.
	mostRows = 4
	// rowOld is after how long the viewer of a job is told though its row is the same: what else
	// its page shows may have changed.
	rowOld = 2 * time.Minute

	beatEach  = 5 * time.Second
	admitEach = time.Minute
	writeFor  = 10 * time.Second
)

// ofLook are the pages that cost no read of their own: they show a look.
var ofLook = map[string]bool{"": true, "lanes": true, "workers": true, "health": true}

// readsOf is about how many reads pages cost that cost more than fewReads. Those of topics and of a
// search cost one more for each row.
var readsOf = map[string]int{"job": 7, "schedule": 3, "topics": 4, "topic": 4, "subscription": 7, "endpoints": 4, "endpoint": 32, "search": 7, "lane": 5}

const fewReads = 2

func init() {
	pages["live"] = &page{name: "live", title: "Changes", takes: []string{"page", "seen"}, serve: (*request).live}
}

// viewer is a stream that is told of changes of a page.
type viewer struct {
	who   string    // name and address
	looks bool      // the page shows a look
	reads int       // that it costs
	job   errand.ID // the page is of this job; zero if it is not
	tell  chan struct{}

	// The rest belongs to the hub.
	seen  int64 // what the page shows: the serial of a look, else the version of the file
	print uint64
	known bool // print is that of the row
	stale bool // something was committed since its row was read
	read  int  // the turn in which that was
	owed  bool // it is to be told
	told  time.Time
}

// hub tells all viewers of changes. It runs while there are viewers.
type hub struct {
	looks *looks
	seed  maphash.Seed

	mu      sync.Mutex
	viewers []*viewer // those told last are last
	runs    bool

	// The rest belongs to the loop.
	turns int
	away  bool
	last  int64 // version
	room  int   // for reads of pages, see readsKept
	far   far
}

func newHub(l *looks) *hub {
	return &hub{looks: l, seed: maphash.MakeSeed()}
}

// enter adds a viewer, and reports whether there is room.
func (h *hub) enter(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= mostViewers {
		return false
	}
	if len(h.viewers) >= mostViewers/2 {
		own := 0
		for _, o := range h.viewers {
			if o.who == v.who {
				own++
			}
		}
		if own >= mostOfOne {
			return false
		}
	}
	h.viewers = append(h.viewers, v)
	if !h.runs {
		h.runs = true
		go h.run()
	}
	return true
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers = slices.DeleteFunc(h.viewers, func(o *viewer) bool { return o == v })
}

// run takes turns until there are no viewers, or the queue is closed. The time between two turns
// begins when the first has ended.
func (h *hub) run() {
	for {
		h.mu.Lock()
		all := slices.Clone(h.viewers)
		h.runs = len(all) > 0
		h.mu.Unlock()
		if len(all) == 0 {
			return
		}
		h.turn(all)
		wait := time.NewTimer(turnEach)
		select {
		case <-wait.C:
		case <-h.looks.over:
			wait.Stop()
			return
		}
	}
}

// turn looks for changes, and tells viewers of them.
func (h *hub) turn(all []*viewer) {
	ctx, stop := withTimeout(context.Background(), readFor)
	defer stop()
	h.turns++
	var version, serial int64
	var known bool
	var err error
	if slices.ContainsFunc(all, func(v *viewer) bool { return v.looks }) {
		var l *look
		if l, err = h.looks.fresh(ctx, true); l != nil {
			version, serial, known = l.version, l.serial, l.known
		}
	} else {
		version, known, err = h.looks.version(ctx)
	}
	changed := err == nil && (known && version != h.last || !known && h.turns%blindEach == 0)
	turned := h.away != (err != nil)
	if h.away = err != nil; err == nil {
		h.last = version
	}
	for _, v := range all {
		v.stale = v.stale || changed || !v.known
	}
	each := readsOfJobs
	if slices.ContainsFunc(all, func(v *viewer) bool { return v.job.IsZero() }) {
		each = readsOfAll
	}
	h.room = min(h.room+each, readsKept)
	if err == nil && h.room > 0 {
		h.rows(ctx, all, version, known)
	}
	for _, v := range all {
		switch {
		case v.looks && v.seen != serial && serial != 0:
			v.seen = serial
			v.ring()
		case v.looks:
		case turned && (h.away || h.turns > 1):
			v.owed = true
		case err == nil && v.job.IsZero() && (known && v.seen != version || !known && changed):
			v.owed = true
		case err == nil && v.known && v.seen != version && time.Since(v.told) >= rowOld:
			v.owed = true
		}
	}
	if err == nil {
		h.far.turn(ctx, h.looks.q, all)
	}
	h.pay(all, version)
}

// pay tells a few of the viewers who are owed it, those first who have waited longest.
func (h *hub) pay(all []*viewer, version int64) {
	var told []*viewer
	for _, v := range all {
		if v.owed && len(told) < mostTold && h.room > 0 {
			told = append(told, v)
			h.room -= v.reads
		}
	}
	for _, v := range told {
		v.owed, v.seen, v.told = false, version, time.Now()
		v.ring()
	}
	if len(told) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.viewers, func(a, b *viewer) int {
		return order(slices.Contains(told, a)) - order(slices.Contains(told, b))
	})
}

func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// ring tells a viewer. One that has not taken the last word yet is told once.
func (v *viewer) ring() {
	select {
	case v.tell <- struct{}{}:
	default:
	}
}

// rows finds out whose job has changed, of a few whose rows are stale: those first that were read
// longest ago.
func (h *hub) rows(ctx context.Context, all []*viewer, version int64, known bool) {
	of := map[errand.ID][]*viewer{}
	var ids []errand.ID
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *viewer) int { return cmp.Compare(a.read, b.read) })
	for _, v := range all {
		if v.job.IsZero() {
			continue
		}
		if v.stale && !slices.Contains(ids, v.job) && len(ids) < mostRows {
			ids = append(ids, v.job)
		}
		of[v.job] = append(of[v.job], v)
	}
	if len(ids) == 0 {
		return
	}
	h.room -= len(ids)
	page, err := h.looks.q.Jobs(ctx, errand.JobFilter{IDs: ids}, nil)
	if h.looks.met(err); err != nil {
		return // the next turn says why
	}
	prints := map[errand.ID]uint64{}
	for i := range page.Jobs {
		prints[page.Jobs[i].ID] = h.printOf(&page.Jobs[i])
		h.far.note(&page.Jobs[i])
	}
	for _, id := range ids {
		for _, v := range of[id] {
			print := prints[id] // 0: the job has gone
			if v.known && v.print != print || !v.known && known && v.seen != version {
				v.owed = true
			}
			v.print, v.known, v.stale, v.read = print, true, false, h.turns
			if v.told.IsZero() {
				v.told = time.Now()
			}
		}
	}
}

// printOf returns a number that changes with a row.
func (h *hub) printOf(j *errand.JobInfo) uint64 {
	b, err := json.Marshal(j)
	if err != nil {
		return 0
	}
	return maphash.Bytes(h.seed, b)
}

var errCrowded = &refusal{status: http.StatusServiceUnavailable, text: "As many are told of changes as can be.", remedy: "Pages that ask every 5 s work."}

// live serves a stream of events: "changed" if the page of the parameter page shows something else
// now, and "beat" every 5 s. It ends with the request, with the queue, and when whoever has asked
// may no longer enter.
func (x *request) live(w http.ResponseWriter) error {
	v, err := x.viewer()
	if err != nil {
		return err
	}
	select {
	case <-x.b.looks.over:
		return errand.ErrClosed
	default:
	}
	if !x.b.hub.enter(v) {
		return errCrowded
	}
	defer x.b.hub.leave(v)
	stream := http.NewResponseController(w)
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("X-Accel-Buffering", "no") // for nginx
	if x.ProtoMajor == 1 {
		head.Set("Connection", "close") // the deadlines below would stay with it
	}
	send := func(text string) bool {
		// Where deadlines cannot be set, those of the server hold, if any.
		if err := stream.SetWriteDeadline(time.Now().Add(writeFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		if _, err := io.WriteString(w, text); err != nil {
			return false
		}
		return stream.Flush() == nil
	}
	if !send("retry: 2000\n\n") || x.Method == http.MethodHead {
		return nil
	}
	beat, admit := time.NewTicker(beatEach), time.NewTicker(admitEach)
	defer beat.Stop()
	defer admit.Stop()
	for going := true; going; {
		select {
		case <-x.Context().Done():
			return nil
		case <-x.b.looks.over:
			return nil
		case <-v.tell:
			going = send("event: changed\ndata: 1\n\n")
		case <-beat.C:
			going = send("event: beat\ndata: 1\n\n")
		case <-admit.C:
			who, err := x.b.o.Auth(x.Request)
			going = err == nil && who.Role >= x.who.Role && who.Role <= Admin
		}
	}
	return nil
}

// viewer returns a viewer of the page of an address: parameter page is its way from the front, and
// seen what the page shows.
func (x *request) viewer() (*viewer, error) {
	at := x.URL.Query().Get("page")
	name, _, _ := strings.Cut(at, "?")
	host, _, _ := net.SplitHostPort(x.RemoteAddr) // none for a socket of the file system
	v := &viewer{who: x.who.Name + "\x00" + host, tell: make(chan struct{}, 1)}
	if id, ok := strings.CutPrefix(name, "job/"); ok {
		var err error
		if v.job, err = errand.ParseID(id); err != nil {
			return nil, err
		}
		name = "job"
	}
	p := pages[name]
	if p == nil || p.posts || p.serve != nil {
		return nil, &errand.FieldError{Field: "page", Value: at, Limit: "must be the address of a page, from the overview"}
	}
	v.looks, v.reads = ofLook[name], cmp.Or(readsOf[name], fewReads)
	if seen := x.URL.Query().Get("seen"); seen != "" {
		var err error
		if v.seen, err = strconv.ParseInt(seen, 10, 64); err != nil {
			return nil, &errand.FieldError{Field: "seen", Value: seen, Limit: "must be a number"}
		}
	}
	return v, nil
}
