package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// other is the name of what is summed, also of a queue and of a kind.
const other = "other"

// series maps each lane to the labels of its series. The mapping of a lane never changes, so no
// counter falls.
type series struct {
	most  int
	merge []string
	lanes map[errand.Lane]errand.Lane // by lane the labels of its series
	kept  map[errand.Lane]bool

	devices map[string]string // by device the label of its series
}

// held are holds of one reason.
type held struct {
	n     int64
	since time.Time // of the oldest
}

// sum is what the lanes of a series have together.
type sum struct {
	jobs                    [len(states)]int64
	ended                   [len(outcomes)]int64
	enqueued, evicted, dead int64
	attempts                map[errand.EventType]int64
	run, wait               errand.Histogram
	oldest, oldestHeld      time.Time
	holds                   map[string]held
	unserved                int64
}

var (
	states = [...]errand.State{
		errand.Scheduled, errand.Ready, errand.Blocked, errand.Running, errand.Done, errand.Cancelled, errand.Expired, errand.Dead,
	}
	outcomes = [...]errand.State{errand.Done, errand.Cancelled, errand.Expired, errand.Dead}
)

// assign maps the lanes that are new, in the order in which the file has met them.
func (s *series) assign(lanes []errand.LaneTotals) {
	if s.lanes == nil {
		s.lanes, s.kept = map[errand.Lane]errand.Lane{}, map[errand.Lane]bool{}
	}
	var fresh []*errand.LaneTotals
	for i := range lanes {
		if _, ok := s.lanes[errand.Lane{Queue: lanes[i].Queue, Kind: lanes[i].Kind}]; !ok {
			fresh = append(fresh, &lanes[i])
		}
	}
	slices.SortFunc(fresh, func(a, b *errand.LaneTotals) int { return cmp.Compare(a.Number, b.Number) })
	for _, t := range fresh {
		as := errand.Lane{Queue: valid(t.Queue), Kind: valid(t.Kind)}
		longest := ""
		for _, p := range s.merge {
			if len(p) > len(longest) && matches(p, t.Queue) {
				longest = p
			}
		}
		as.Queue = cmp.Or(longest, as.Queue)
		if !s.kept[as] && len(s.kept) >= s.most {
			as = errand.Lane{Queue: other, Kind: other}
		} else {
			s.kept[as] = true
		}
		s.lanes[errand.Lane{Queue: t.Queue, Kind: t.Kind}] = as
	}
}

// sums adds up the lanes of each series.
func (s *series) sums(now *state) map[errand.Lane]*sum {
	s.assign(now.lanes)
	all := map[errand.Lane]*sum{}
	names := reasonNames(now.lanes)
	for i := range now.lanes {
		l := &now.lanes[i]
		as := s.lanes[errand.Lane{Queue: l.Queue, Kind: l.Kind}]
		of := all[as]
		if of == nil {
			of = &sum{attempts: map[errand.EventType]int64{}, holds: map[string]held{}}
			all[as] = of
		}
		of.count(l)
		of.look(&l.Stats, names, now)
	}
	return all
}

// count adds the totals of a lane.
func (s *sum) count(t *errand.LaneTotals) {
	s.enqueued += t.Enqueued
	s.evicted += t.Evicted
	s.dead += t.DeadEvicted
	for i, n := range [...]int64{t.Done, t.Cancelled, t.Expired, t.Dead} {
		s.ended[i] += n
	}
	for e, n := range t.Attempts {
		s.attempts[e] += n
	}
	add(&s.run, &t.Run)
	add(&s.wait, &t.Wait)
}

// look adds what a lane is like now.
func (s *sum) look(l *errand.LaneStats, names map[string]string, now *state) {
	for i, n := range [...]int64{l.Scheduled, l.Ready, l.Blocked, l.Running, l.Done, l.Cancelled, l.Expired, l.Dead} {
		s.jobs[i] += n
	}
	for i := range l.Holds {
		h, reason := &l.Holds[i], names[l.Holds[i].Reason]
		of := s.holds[reason]
		if of.n++; of.n == 1 || h.Since.Before(of.since) {
			of.since = h.Since
		}
		s.holds[reason] = of
	}
	served := slices.ContainsFunc(now.workers, func(w errand.WorkerInfo) bool { return serves(&w, l.Queue, l.Kind) })
	if !served && (l.Running > 0 || !l.OldestDue.IsZero()) {
		s.unserved++
	}
	if l.OldestDue.IsZero() {
		return
	}
	oldest := &s.oldest
	if len(l.Holds) > 0 {
		oldest = &s.oldestHeld
	}
	if oldest.IsZero() || l.OldestDue.Before(*oldest) {
		*oldest = l.OldestDue
	}
}

// add adds a histogram to another one, which has the same bounds or none.
func add(to, h *errand.Histogram) {
	if to.Buckets == nil {
		to.Buckets = make([]errand.Bucket, len(h.Buckets))
	}
	for i, b := range h.Buckets {
		to.Buckets[i].UpTo = b.UpTo
		to.Buckets[i].N += b.N
	}
	to.Count += h.Count
	to.Sum += h.Sum
}

// mostReasons is how many reasons of holds are told apart.
const mostReasons = 20

// reasonNames returns the labels of the reasons of holds. Anybody may hold a lane for any
// reason: those of errand itself, and the first others by name, have labels of their own.
func reasonNames(lanes []errand.LaneTotals) map[string]string {
	names := map[string]string{}
	for i := range lanes {
		for _, h := range lanes[i].Stats.Holds {
			names[h.Reason] = other
		}
	}
	first := []string{"held", "paused", "unavailable", "brake"}
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(first, reason) {
			first = append(first, reason)
		}
	}
	for _, reason := range first[:min(len(first), mostReasons)] {
		names[reason] = valid(reason)
	}
	return names
}

// families returns the numbers of a look.
func (s *series) families(now *state) []Family {
	all := slices.Clone(schema)
	all[famUp].add(1)
	all[famClock].add(seconds(now.clock))
	sums := s.sums(now)
	for _, lane := range slices.SortedFunc(maps.Keys(sums), errand.Lane.Compare) {
		sums[lane].samples(all, lane, now.shown)
	}
	behind := s.behindDead(now)
	for _, queue := range slices.Sorted(maps.Keys(behind)) {
		all[famBehindDead].add(behind[queue], queue)
	}
	for _, code := range codes {
		if now.knows(code) {
			all[famHealth].add(now.reasons(code), string(code))
		}
	}
	if now.knows(errand.HealthFull) {
		all[famDiskFull].add(now.reasons(errand.HealthFull))
	}
	if now.shown {
		all[famWorkers].add(float64(len(now.workers)))
	}
	if now.file >= 0 {
		all[famFile].add(float64(now.file))
		all[famLog].add(float64(now.log))
	}
	s.relays(all, &now.relayed)
	return all
}

// behindDead returns how many jobs wait behind dead ones, by the label of their queue.
func (s *series) behindDead(now *state) map[string]float64 {
	all, as := map[string]float64{}, map[string]string{}
	for lane, series := range s.lanes {
		if is := as[lane.Queue]; is == "" || is == other { // some of its lanes may have come too late
			as[lane.Queue] = series.Queue
		}
	}
	for i := range now.health.Reasons {
		if r := &now.health.Reasons[i]; r.Code == errand.HealthDeadHead {
			all[cmp.Or(as[r.Queue], other)] += float64(r.Jobs)
		}
	}
	return all
}

// samples adds the samples of a series.
func (s *sum) samples(all []Family, lane errand.Lane, shown bool) {
	add := func(family int, n int64, more ...string) {
		all[family].add(float64(n), append([]string{lane.Queue, lane.Kind}, more...)...)
	}
	for i, n := range s.jobs {
		add(famJobs, n, string(states[i]))
	}
	add(famEnqueued, s.enqueued)
	for i, n := range s.ended {
		add(famEnded, n, string(outcomes[i]))
	}
	add(famEvicted, s.evicted)
	add(famDeadEvicted, s.dead)
	for _, e := range slices.Sorted(maps.Keys(s.attempts)) {
		add(famAttempts, s.attempts[e], verdict(e))
	}
	all[famRun].time(&s.run, lane)
	all[famWait].time(&s.wait, lane)
	if !s.oldest.IsZero() {
		all[famOldest].add(seconds(s.oldest), lane.Queue, lane.Kind, "false")
	}
	if !s.oldestHeld.IsZero() {
		all[famOldest].add(seconds(s.oldestHeld), lane.Queue, lane.Kind, "true")
	}
	for _, reason := range slices.Sorted(maps.Keys(s.holds)) {
		add(famHolds, s.holds[reason].n, reason)
		all[famHeldSince].add(seconds(s.holds[reason].since), lane.Queue, lane.Kind, reason)
	}
	if shown {
		add(famUnserved, s.unserved)
	}
}

// verdict returns an event as a label.
func verdict(e errand.EventType) string { return strings.ReplaceAll(string(e), " ", "_") }

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
