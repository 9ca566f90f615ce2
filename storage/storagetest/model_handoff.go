package storagetest

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// offer is a [storage.Offer] on a Memory.
type offer struct {
	in       *instance
	want     storage.Want
	lease    time.Duration
	receive  func([]storage.Leased, time.Time)
	capacity int
	coming   int            // leased, and receive has not returned
	calls    sync.WaitGroup // of receive
}

// Offer implements [storage.Handoff].
func (in *instance) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	o := &offer{in: in, want: cloneWant(want), lease: lease, receive: receive, capacity: want.N}
	in.offers = append(in.offers, o)
	return o
}

func cloneWant(w storage.Want) storage.Want {
	w.Queues, w.Kinds, w.Except, w.EachOf = slices.Clone(w.Queues), slices.Clone(w.Kinds), slices.Clone(w.Except), maps.Clone(w.EachOf)
	w.ByGroup = 0
	return w
}

// Capacity implements [storage.Offer].
func (o *offer) Capacity(n int) {
	o.in.m.mu.Lock()
	defer o.in.m.mu.Unlock()
	o.capacity = n
}

// Close implements [storage.Offer].
func (o *offer) Close() {
	o.in.m.mu.Lock()
	o.in.offers = slices.DeleteFunc(o.in.offers, func(x *offer) bool { return x == o })
	o.in.m.mu.Unlock()
	o.calls.Wait()
}

// handOver leases to the offers of in because of what a call has inserted. It
// returns what passes the jobs on, to be called without the lock.
func (in *instance) handOver(now time.Time, inserted []*job) (pass func()) {
	var calls []func()
	for _, o := range in.offers {
		cause := slices.ContainsFunc(inserted, func(j *job) bool { return j.State == storage.Ready && j.in(o.want) })
		if !cause || o.capacity <= o.coming {
			continue
		}
		began := time.Now()
		jobs, _ := in.grant(now, storage.Exchange{LeaseDuration: o.lease, Wants: wants(o.capacity-o.coming, o.want)}, nil)
		if len(jobs) > 0 {
			calls = append(calls, o.passing(jobs, began))
		}
	}
	return func() {
		for _, call := range calls {
			call()
		}
	}
}

// passing returns what passes jobs to o.
func (o *offer) passing(jobs []storage.Leased, began time.Time) func() {
	n := len(jobs)
	o.coming += n
	o.calls.Add(1)
	return func() {
		defer o.calls.Done()
		o.receive(jobs, began)
		o.in.m.mu.Lock()
		defer o.in.m.mu.Unlock()
		o.coming -= n
	}
}

func (j *job) in(w storage.Want) bool {
	isOf := func(kind string) bool { return kind == j.Kind || kind == "*" && j.Queue != storage.BulkQueue }
	if !slices.ContainsFunc(w.Kinds, isOf) || slices.ContainsFunc(w.Except, func(l storage.Lane) bool { return isOf(l.Kind) && j.inAny([]string{l.Queue}) }) {
		return false
	}
	return j.inAny(w.Queues)
}

// inAny reports whether the queue of j is one of these, or begins with a prefix of them.
func (j *job) inAny(names []string) bool {
	for _, name := range names {
		if last := len(name) - 1; name == j.Queue || last >= 0 && name[last] == '*' && len(j.Queue) >= last && j.Queue[:last] == name[:last] {
			return true
		}
	}
	return false
}
