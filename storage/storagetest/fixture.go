package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// hold is the length of leases, keep how long finished jobs are kept, and
// queue and kind are those of jobs, where a case does not say otherwise.
const (
	hold  = 30 * time.Second
	keep  = time.Hour
	queue = "mail"
	kind  = "send"
)

// fixture is what a case works with. Its methods fail the case on any error,
// and check what must hold for every answer.
type fixture struct {
	testing.TB
	ctx    context.Context
	db     DB
	s      storage.Store        // the first instance
	now    time.Time            // whole microseconds
	ids    map[int64]storage.ID // by key, of all jobs enqueued
	tokens map[int64]bool

	revisions map[string][]int64 // by name, all that a schedule was given
	lacking   *lacking           // nil: anything may be missing
	partial   []storage.Feature  // what the store says that it lacks
}

func newFixture(t testing.TB, db DB) *fixture {
	f := &fixture{
		TB:     t,
		ctx:    context.Background(),
		db:     db,
		s:      db.Open(),
		now:    time.Date(2026, 3, 4, 5, 6, 7, 891_011_000, time.UTC),
		ids:    map[int64]storage.ID{},
		tokens: map[int64]bool{},

		revisions: map[string][]int64{},
	}
	f.partial = storage.LacksOf(f.s)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	f.able(err)
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

// later moves the clock on.
func (f *fixture) later(d time.Duration) { f.now = f.now.Add(d) }

// newJob is a NewJob with the usual queue and kind, changed by each of changes.
func newJob(changes ...func(*storage.NewJob)) storage.NewJob {
	n := storage.NewJob{Queue: queue, Kind: kind, Args: []byte(`{"to":"ada"}`)}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func priority(p int) func(*storage.NewJob)        { return func(n *storage.NewJob) { n.Priority = p } }
func dueAt(t time.Time) func(*storage.NewJob)     { return func(n *storage.NewJob) { n.DueAt = t } }
func delay(d time.Duration) func(*storage.NewJob) { return func(n *storage.NewJob) { n.Delay = d } }
func unique(key string) func(*storage.NewJob)     { return func(n *storage.NewJob) { n.Unique = key } }
func tagged(tags ...string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Tags = tags }
}
func forever(n *storage.NewJob) { n.UniqueScope = storage.UniqueForever }
func lane(q, k string) func(*storage.NewJob) {
	return func(n *storage.NewJob) { n.Queue, n.Kind = q, k }
}

func times(n int, j storage.NewJob) []storage.NewJob { return slices.Repeat([]storage.NewJob{j}, n) }

// enqueue returns the answers to jobs.
func (f *fixture) enqueue(jobs ...storage.NewJob) []storage.Enqueued {
	f.Helper()
	out, err := f.s.Enqueue(f.ctx, f.now, jobs)
	f.must(err)
	if len(out) != len(jobs) {
		f.Fatalf("Enqueue of %d jobs returned %d answers", len(jobs), len(out))
	}
	for _, e := range out {
		switch {
		case e.ID.IsZero():
			f.Fatalf("Enqueue returned a zero ID: %v", out)
		case e.Duplicate:
		case !f.ids[e.ID.Key()].IsZero():
			f.Errorf("Enqueue returned the key %d a second time", e.ID.Key())
		default:
			f.ids[e.ID.Key()] = e.ID
		}
	}
	return out
}

// add enqueues jobs, none of which may be a duplicate, and returns their IDs.
func (f *fixture) add(jobs ...storage.NewJob) []storage.ID {
	f.Helper()
	var ids []storage.ID
	for i, e := range f.enqueue(jobs...) {
		if e.Duplicate {
			f.Fatalf("Enqueue called job %d a duplicate of %v", i, e.ID)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// exchange is one Exchange of s.
func (f *fixture) exchange(s storage.Store, x storage.Exchange) storage.ExchangeResult {
	f.Helper()
	if x.LeaseDuration == 0 {
		x.LeaseDuration = hold
	}
	res, err := s.Exchange(f.ctx, f.now, x)
	f.must(err)
	if x.Wanted()+x.Urgent > 0 {
		f.promoteOthers(s, x, &res)
	}
	if len(res.Extended) != len(x.Extend) || len(res.Started) != len(x.Start) || len(res.Finished) != len(x.Finish) || len(res.Leased) > x.Wanted()+x.Urgent {
		f.Fatalf("Exchange of %d to extend, %d to start, %d to finish, %d wanted returned %d, %d, %d, %d",
			len(x.Extend), len(x.Start), len(x.Finish), x.Wanted()+x.Urgent, len(res.Extended), len(res.Started), len(res.Finished), len(res.Leased))
	}
	for i, r := range res.Finished {
		if r == storage.Unable {
			f.able(storage.Lacking(f.partial, x.Finish[i].Needs()))
		}
	}
	for _, l := range res.Leased {
		f.token(l.Token)
	}
	return res
}

// token notes that a lease has this token.
func (f *fixture) token(token int64) {
	f.Helper()
	if f.tokens[token] {
		f.Errorf("token %d was given a second time", token)
	}
	f.tokens[token] = true
}

// lease leases at most n of the usual jobs to s.
func (f *fixture) lease(s storage.Store, n int) []storage.Leased {
	f.Helper()
	return f.exchange(s, storage.Exchange{Wants: wants(n)}).Leased
}

// leaseOne leases one job to s, which there must be.
func (f *fixture) leaseOne(s storage.Store) storage.Leased {
	f.Helper()
	got := f.lease(s, 1)
	if len(got) != 1 {
		f.Fatalf("no job was leased, want one")
	}
	return got[0]
}

// run enqueues a job and leases it to s.
func (f *fixture) run(s storage.Store, changes ...func(*storage.NewJob)) storage.Leased {
	f.Helper()
	id := f.add(newJob(changes...))[0]
	l := f.leaseOne(s)
	if l.ID != id {
		f.Fatalf("leased %v, want the job just enqueued, %v", l.ID, id)
	}
	return l
}

func (f *fixture) extend(s storage.Store, l storage.Lease) storage.ItemResult {
	f.Helper()
	return f.exchange(s, storage.Exchange{Extend: []storage.Lease{l}}).Extended[0]
}

func (f *fixture) finish(s storage.Store, fin storage.Finish) storage.ItemResult {
	f.Helper()
	return f.exchange(s, storage.Exchange{Finish: []storage.Finish{fin}}).Finished[0]
}

// apply finishes a lease, which must be applied.
func (f *fixture) apply(s storage.Store, fin storage.Finish) {
	f.Helper()
	f.keep(0, s, fin)
}

// kept is a Retention of d for all lanes.
func kept(d time.Duration) storage.Retention { return storage.Retention{Default: d} }

// keep is apply for a job that is kept for d if it ends.
func (f *fixture) keep(d time.Duration, s storage.Store, fin storage.Finish) {
	f.Helper()
	x := storage.Exchange{Finish: []storage.Finish{fin}, Retention: kept(d)}
	if r := f.exchange(s, x).Finished[0]; r != storage.Applied {
		f.Fatalf("finishing with outcome %d returned result %d, want applied", fin.Outcome, r)
	}
}

// bury enqueues a job and lets it die, by a failure with this text.
func (f *fixture) bury(reason storage.Reason, text string, changes ...func(*storage.NewJob)) storage.ID {
	f.Helper()
	l := f.add(newJob(changes...))[0]
	rec := f.record(l)
	src := storage.Want{Queues: []string{rec.Queue}, Kinds: []string{rec.Kind}}
	for _, got := range f.exchange(f.s, storage.Exchange{Wants: wants(1, src)}).Leased {
		if got.ID == l {
			f.apply(f.s, died(got.Lease, reason, text))
			return l
		}
	}
	f.Fatalf("the job just enqueued was not leased")
	return l
}

// died is the end of a lease in the dead letters.
func died(l storage.Lease, reason storage.Reason, text string) storage.Finish {
	return storage.Finish{
		Lease: l, Outcome: storage.OutcomeDead, Reason: reason, Error: text, Cause: text,
		Policy: []byte(`{"numRetries":3}`), Failure: &storage.NewFailure{Phase: "backoff", Error: text},
	}
}

func (f *fixture) record(id storage.ID) storage.Record {
	f.Helper()
	r, err := f.s.Job(f.ctx, id)
	f.must(err)
	if r.ID != id || r.Key != id.Key() {
		f.Fatalf("Job(%v) returned the job %v with key %d", id, r.ID, r.Key)
	}
	return r
}

// is checks the state of jobs; an empty state means that they are gone.
func (f *fixture) is(want storage.State, ids ...storage.ID) {
	f.Helper()
	for i, id := range ids {
		r, err := f.s.Job(f.ctx, id)
		switch {
		case want == "" && errors.Is(err, storage.ErrNotFound):
		case want == "":
			f.Errorf("job %d is %q (%v), want ErrNotFound", i, r.State, err)
		case err != nil || r.State != want:
			f.Errorf("job %d is %q (%v), want %q", i, r.State, err, want)
		}
	}
}

func (f *fixture) cancel(id storage.ID) storage.State {
	f.Helper()
	state, err := f.s.Cancel(f.ctx, f.now, id, kept(keep))
	f.must(err)
	return state
}

func (f *fixture) pause(q string, paused bool) {
	f.Helper()
	if paused {
		f.hold(storage.Hold{Lane: storage.Lane{Queue: q}, Reason: storage.HoldPaused})
		return
	}
	f.release(storage.Lane{Queue: q}, storage.HoldPaused)
}

// reclaim is one Reclaim of s, with the usual lease and no limit to speak of.
func (f *fixture) reclaim(s storage.Store, mono time.Duration) []storage.Reclaimed {
	f.Helper()
	return f.reclaimFor(s, mono, hold, 1000)
}

func (f *fixture) reclaimFor(s storage.Store, mono, length time.Duration, limit int) []storage.Reclaimed {
	f.Helper()
	out, err := s.Reclaim(f.ctx, f.now, mono, length, limit)
	f.must(err)
	if len(out) > limit {
		f.Fatalf("Reclaim with a limit of %d took %d", limit, len(out))
	}
	for _, r := range out {
		f.token(r.Token)
	}
	return out
}

// takes checks that s reclaims just the lease l, and returns what it got.
func (f *fixture) takes(s storage.Store, mono time.Duration, l storage.Lease, fate storage.Fate) storage.Reclaimed {
	f.Helper()
	got := f.reclaim(s, mono)
	if len(got) != 1 || got[0].Key != l.Key {
		f.Fatalf("Reclaim took %d leases (%v), want the one on job %d", len(got), got, l.Key)
	}
	if fate = f.known(fate); got[0].Fate != fate {
		f.Errorf("the fate of job %d is %s, want %s", l.Key, fateName(got[0].Fate), fateName(fate))
	}
	return got[0]
}

// known returns what a Store can know of a fate.
func (f *fixture) known(fate storage.Fate) storage.Fate {
	if _, ok := f.s.(storage.Marker); !ok {
		return storage.Cut
	}
	return fate
}

// takesNothing checks that s reclaims nothing.
func (f *fixture) takesNothing(s storage.Store, mono time.Duration) {
	f.Helper()
	if got := f.reclaim(s, mono); len(got) != 0 {
		f.Fatalf("Reclaim took %v, want nothing", got)
	}
}

func fateName(fate storage.Fate) string {
	names := map[storage.Fate]string{storage.Unstarted: "unstarted", storage.Crashed: "crashed", storage.Cut: "cut"}
	if n, ok := names[fate]; ok {
		return n
	}
	return fmt.Sprintf("unknown (%d)", fate)
}

// counts checks Counts.
func (f *fixture) counts(want ...storage.Count) {
	f.Helper()
	got, err := f.s.Counts(f.ctx)
	f.must(err)
	if len(got) != len(want) || (len(want) > 0 && !slices.Equal(got, want)) {
		f.Errorf("Counts:\n got %v\nwant %v", got, want)
	}
}

// count is one row of Counts with the usual queue and kind.
func count(state storage.State, n int64) storage.Count {
	return storage.Count{Queue: queue, Kind: kind, State: state, N: n}
}

// same checks that a record is as wanted, except for fields that the contract
// leaves open.
func (f *fixture) same(what string, got, want storage.Record) {
	f.Helper()
	got, want = plain(got), plain(want)
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			f.Errorf("%s: %s is %s, want %s", what, g.Type().Field(i).Name, show(a), show(b))
		}
	}
}

// show formats a field for a message, long ones cut.
func show(v any) string {
	if b, ok := v.([]byte); ok {
		v = string(b)
		if b == nil {
			return "nil"
		}
	}
	return fmt.Sprintf("%.300q", fmt.Sprintf("%+v", v))
}

// plain brings a record into a form that can be compared field by field.
func plain(r storage.Record) storage.Record {
	r.StartBy, r.Deadline = r.StartBy.UTC(), r.Deadline.UTC()
	r.CreatedAt, r.DueAt, r.EndedAt = r.CreatedAt.UTC(), r.DueAt.UTC(), r.EndedAt.UTC()
	if r.State != storage.Scheduled && r.State != storage.Ready && r.State != storage.Blocked {
		r.DueAt = time.Time{} // whether it still applies is left open
	}
	if len(r.Policy) == 0 {
		r.Policy = nil
	}
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	if len(r.Args) == 0 {
		r.Args = nil
	}
	if len(r.Tags) == 0 {
		r.Tags = nil
	}
	var history []storage.Failure
	for _, h := range r.History {
		if h.At = h.At.UTC(); len(h.Args) == 0 {
			h.Args = nil
		}
		history = append(history, h)
	}
	r.History = history
	return r
}

// leasedIDs returns the IDs of leased jobs.
func leasedIDs(leased []storage.Leased) []storage.ID {
	var out []storage.ID
	for _, l := range leased {
		out = append(out, l.ID)
	}
	return out
}

// pick returns the elements of all at these places.
func pick[E any](all []E, places ...int) []E {
	out := make([]E, 0, len(places))
	for _, p := range places {
		out = append(out, all[p])
	}
	return out
}

// order checks that got are the jobs wanted, in that order.
func (f *fixture) order(what string, got, want []storage.ID) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Errorf("%s: got keys %v, want %v", what, keysOf(got), keysOf(want))
	}
}

func keysOf(ids []storage.ID) []int64 {
	out := make([]int64, 0, len(ids))
	for _, id := range ids {
		out = append(out, id.Key())
	}
	return out
}
