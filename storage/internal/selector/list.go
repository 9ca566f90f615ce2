package selector

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand/storage"
)

// LookLimit is how many jobs a page looks at: 5 to 60 ms on two busy cores with SQLite, the more
// the farther apart their rows are (BenchmarkJobs). It holds up nobody but one of the
// connections for callers.
const LookLimit = 2000

// Glance is what a list sees of a job: the columns of the query of a list.
type Glance struct {
	ID, State, Lane, Priority, DueAt, CreatedAt, EndedAt int64
	Mark                                                 string // see [Rows]
	Hit                                                  bool   // it matches, but for its lane
}

// LaneCount is how many jobs of a lane are in a state.
type LaneCount struct {
	Lane        int64
	Queue, Kind string
	State       int64
	N           int64
}

// Reader reads what a list asks for, all as of one moment.
type Reader interface {
	// Look calls fn for the rows of a query, in their order, until fn returns false.
	Look(q Query, fn func(*Glance) (more bool)) error
	// Lanes returns the lanes of a queue, or of all if it is empty, sorted by queue and kind, with
	// how many jobs each has in each state. A lane that has none has a row with N zero. Running jobs
	// need not be counted. Rows of rest have no names, and are counted beside the others.
	Lanes(queue string) (all, rest []LaneCount, err error)
	// NextKey returns a key that is higher than those of all jobs.
	NextKey() (int64, error)
}

// Found is a part of a list, see [storage.Page].
type Found struct {
	Jobs   []Glance
	Next   string
	Looked int
}

// List reads the part of a list that comes after a place.
//
// It looks at jobs one by one in the order of an index, until it has enough that match or has
// looked at LookLimit.
func (s *Selector) List(r Reader, f *storage.Filter, after string, limit int) (Found, error) {
	l := lister{selector: s, reader: r, filter: f, limit: limit, values: s.filter(f)}
	if limit > 0 {
		if err := l.list(after); err != nil {
			return Found{}, err
		}
	}
	if !l.over {
		l.next = ""
	}
	return Found{l.found, l.next, l.looked}, nil
}

// lister makes one page.
type lister struct {
	selector *Selector
	reader   Reader
	filter   *storage.Filter
	limit    int
	values   values
	// lanes are those that match, by queue and kind, and counts how many jobs they have in each
	// state. Of a filter for all lanes a job of any lane matches, also of one that is missing, but
	// for those of bulk.
	lanes, bulk []int64
	counts      map[laneState]int64

	found  []Glance
	looked int
	next   string // after the last one looked at
	over   bool   // there may be more
}

type laneState struct{ lane, state int64 }

// list finds the jobs of the page.
func (l *lister) list(after string) error {
	if err := l.readLanes(); err != nil {
		return err
	}
	if l.filter.ByKey() {
		at, err := ReadPlace(after, 'k', 1)
		if err != nil {
			return err
		}
		return l.byKey(at)
	}
	sections := []struct {
		name    byte
		numbers int // of a place in it; 0 for a text
		states  []storage.State
		list    func(at []int64, from string) error
	}{
		{'r', 1, []storage.State{storage.Running}, l.running},
		{'w', 4, []storage.State{storage.Ready}, l.ready},
		{'s', 2, []storage.State{storage.Scheduled}, l.scheduled},
		{'b', 0, []storage.State{storage.Blocked}, l.blocked},
		{'u', 1, []storage.State{storage.Blocked}, l.behind},
		{'d', 2, []storage.State{storage.Dead}, l.dead},
		{'f', 1, []storage.State{storage.Done, storage.Cancelled, storage.Expired}, l.finished},
	}
	begun := after == ""
	for _, s := range sections {
		var at []int64
		var from string
		if !begun {
			if after[0] != s.name {
				continue
			}
			var err error
			if s.numbers == 0 {
				from = after[1:]
			} else if at, err = ReadPlace(after, s.name, s.numbers); err != nil {
				return err
			}
			begun = true
		}
		if !l.any(s.states) {
			continue
		}
		if err := s.list(at, from); err != nil || l.over {
			return err
		}
	}
	if !begun {
		return badPlace(after)
	}
	return nil
}

// readLanes reads which lanes match, and how many jobs they have.
func (l *lister) readLanes() error {
	all, rest, err := l.reader.Lanes(l.filter.Queue)
	if err != nil {
		return err
	}
	l.counts = map[laneState]int64{}
	for _, r := range all {
		if l.filter.Queue != "" && l.filter.Queue != r.Queue || l.filter.Kind != "" && l.filter.Kind != r.Kind {
			continue
		}
		if !l.filter.Reaches(r.Queue) {
			l.bulk = append(l.bulk, r.Lane)
			continue
		}
		if n := len(l.lanes); n == 0 || l.lanes[n-1] != r.Lane {
			l.lanes = append(l.lanes, r.Lane)
		}
		l.counts[laneState{r.Lane, r.State}] = r.N
	}
	for _, r := range rest {
		l.counts[laneState{r.Lane, r.State}] += r.N
	}
	return nil
}

// any reports whether a job in one of the states can match.
func (l *lister) any(states []storage.State) bool {
	for _, s := range chosen(l.filter, states) {
		for _, lane := range l.lanes {
			if s == storage.Running || l.counts[laneState{lane, codeOf(s)}] > 0 {
				return true
			}
		}
	}
	return false
}

// matches reports whether a lane matches.
func (l *lister) matches(lane int64) bool {
	if l.filter.Queue != "" || l.filter.Kind != "" {
		return slices.Contains(l.lanes, lane)
	}
	return !slices.Contains(l.bulk, lane)
}

// look looks at the jobs of a walk. The place after each is what mark returns.
func (l *lister) look(w Walk, mark func(g *Glance) string) error {
	if l.over {
		return nil
	}
	if l.values.number("limit", int64(LookLimit-l.looked+1)); l.filter.Error != "" {
		w += WithError
	}
	return l.reader.Look(l.selector.query(w, &l.values), func(g *Glance) bool {
		if l.over = l.looked == LookLimit; l.over {
			return false
		}
		l.looked++
		hit := g.Hit && l.matches(g.Lane)
		if l.over = hit && len(l.found) == l.limit; l.over {
			return false
		}
		if hit {
			l.found = append(l.found, *g)
		}
		l.next = mark(g)
		return true
	})
}

func (l *lister) running(at []int64, _ string) error {
	l.values.number("below", first(at, math.MaxInt64))
	return l.look(ListRunning, func(g *Glance) string { return Mark('r', g.ID) })
}

// ready lists lane by lane.
func (l *lister) ready(at []int64, _ string) error {
	lanes := l.lanes
	mark := func(g *Glance) string { return Mark('w', g.Lane, g.Priority, g.DueAt, g.ID) }
	if at != nil {
		i := slices.Index(lanes, at[0])
		if i < 0 {
			return badPlace(fmt.Sprint(at))
		}
		lanes = lanes[i+1:]
		l.values.number("lane", at[0])
		l.values.number("priority", at[1])
		l.values.by(between(l.filter.DueFrom, l.filter.DueBefore), at[2], at[3], up)
		if err := l.look(ListReadyRest, mark); err != nil {
			return err
		}
		if err := l.look(ListReady, mark); err != nil {
			return err
		}
	}
	for _, lane := range lanes {
		if l.counts[laneState{lane, codeOf(storage.Ready)}] == 0 {
			continue
		}
		l.values.number("lane", lane)
		l.values.number("priority", math.MaxInt64)
		if err := l.look(ListReady, mark); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) scheduled(at []int64, _ string) error {
	due, key := int64(math.MinInt64), int64(-1)
	if at != nil {
		due, key = at[0], at[1]
	}
	l.values.by(between(l.filter.DueFrom, l.filter.DueBefore), due, key, up)
	return l.look(ListScheduled, func(g *Glance) string { return Mark('s', g.DueAt, g.ID) })
}

// blocked lists group by group.
func (l *lister) blocked(_ []int64, from string) error {
	low, high, job := "", "\x7f", int64(-1)
	if l.filter.Queue != "" {
		low, high = l.filter.Queue+" ", l.filter.Queue+"!"
	}
	if from != "" {
		number, key, _ := strings.Cut(from, ".")
		var err error
		if job, err = strconv.ParseInt(number, 10, 64); err != nil {
			return badPlace(from)
		}
		low = key
	}
	l.values.set("groups_from", low)
	l.values.set("groups_before", high)
	l.values.number("above", job)
	return l.look(ListBlocked, func(g *Glance) string { return Mark('b', g.ID) + "." + g.Mark })
}

// behind lists those that wait behind the holder of their unique key.
func (l *lister) behind(at []int64, _ string) error {
	l.values.number("above", first(at, -1))
	return l.look(ListBehind, func(g *Glance) string { return Mark('u', g.ID) })
}

func (l *lister) dead(at []int64, _ string) error {
	ended, key := int64(math.MaxInt64), int64(math.MaxInt64)
	if at != nil {
		ended, key = at[0], at[1]
	}
	l.values.by(between(l.filter.EndedFrom, l.filter.EndedBefore), ended, key, down)
	walk := ListDead
	if l.filter.Cause != 0 {
		walk = ListCause
	}
	return l.lookIfThere(walk, func(g *Glance) string { return Mark('d', g.EndedAt, g.ID) })
}

// lookIfThere is look for what a dialect may lack: then there is no such job.
func (l *lister) lookIfThere(w Walk, mark func(g *Glance) string) error {
	if !l.selector.Has(w) {
		return nil
	}
	return l.look(w, mark)
}

func (l *lister) finished(at []int64, _ string) error {
	l.values.number("below", first(at, math.MaxInt64))
	return l.look(ListFinished, func(g *Glance) string { return Mark('f', g.ID) })
}

func (l *lister) byKey(at []int64) error {
	low, high := int64(0), int64(math.MaxInt64)
	created := between(l.filter.CreatedFrom, l.filter.CreatedBefore)
	for _, b := range []struct {
		at  int64
		key *int64
	}{{created.from, &low}, {created.before, &high}} {
		if b.at == math.MinInt64 || b.at == math.MaxInt64 {
			continue
		}
		var err error
		if *b.key, err = l.keyFrom(b.at); err != nil {
			return err
		}
	}
	l.values.number("above", low-1)
	l.values.number("below", min(high, first(at, math.MaxInt64)))
	walk := ListKeys
	switch {
	case l.filter.Group != "":
		walk = ListGroup
	case l.filter.Tag != "":
		walk = ListTag
	}
	return l.lookIfThere(walk, func(g *Glance) string { return Mark('k', g.ID) })
}

// keyFrom returns the key of the first job that was enqueued at a time or later, as if
// the times rose with the keys.
func (l *lister) keyFrom(at int64) (int64, error) {
	low := int64(1)
	high, err := l.reader.NextKey()
	l.values.number("limit", 1)
	for err == nil && low < high {
		middle := low + (high-low)/2
		l.values.number("above", middle-1)
		from := Glance{ID: high, CreatedAt: at} // none
		err = l.reader.Look(l.selector.query(ListFrom, &l.values), func(g *Glance) bool {
			from = *g
			return false
		})
		if from.CreatedAt >= at {
			high = middle
		} else {
			low = from.ID + 1
		}
	}
	return low, err
}

func first(at []int64, otherwise int64) int64 {
	if at == nil {
		return otherwise
	}
	return at[0]
}

// Mark returns a place in a list as text.
func Mark(section byte, numbers ...int64) string {
	b := []byte{section}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// ReadPlace reads what Mark has written, and returns nil for the beginning.
func ReadPlace(text string, section byte, n int) ([]int64, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text[1:], ".")
	if text[0] != section || len(parts) != n {
		return nil, badPlace(text)
	}
	at := make([]int64, n)
	for i, p := range parts {
		var err error
		if at[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return nil, badPlace(text)
		}
	}
	return at, nil
}

func badPlace(text string) error {
	return fmt.Errorf("errand: place %q in a list: must be the Next of a page of the same list", text)
}
