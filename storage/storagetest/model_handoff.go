package storagetest

import (
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// offer is a [storage.Offer] on a Memory.
type offer struct {
	in     *instance
	src    storage.Source
	length time.Duration
	take   func([]storage.Leased, time.Time)
	room   int
	coming int            // leased, and take has not returned
	taking sync.WaitGroup // calls of take
}

// Offer implements [storage.Handoff].
func (in *instance) Offer(src storage.Source, length time.Duration, take func([]storage.Leased, time.Time)) storage.Offer {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	o := &offer{in: in, src: cloneSource(src), length: length, take: take}
	in.offers = append(in.offers, o)
	return o
}

func cloneSource(src storage.Source) storage.Source {
	return storage.Source{Queues: slices.Clone(src.Queues), Kinds: slices.Clone(src.Kinds)}
}

// Room implements [storage.Offer].
func (o *offer) Room(n int) {
	o.in.m.mu.Lock()
	defer o.in.m.mu.Unlock()
	o.room = n
}

// Close implements [storage.Offer].
func (o *offer) Close() {
	o.in.m.mu.Lock()
	o.in.offers = slices.DeleteFunc(o.in.offers, func(x *offer) bool { return x == o })
	o.in.m.mu.Unlock()
	o.taking.Wait()
}

// handOver leases to the offers of in because of what a call has inserted. It
// returns what passes the jobs on, to be called without the lock.
func (in *instance) handOver(now time.Time, inserted []*job) (pass func()) {
	var calls []func()
	for _, o := range in.offers {
		cause := slices.ContainsFunc(inserted, func(j *job) bool { return j.State == storage.Ready && j.in(o.src) })
		if !cause || o.room <= o.coming {
			continue
		}
		began := time.Now()
		jobs := in.grant(now, storage.Exchange{Length: o.length, Source: o.src, Want: o.room - o.coming})
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
	o.taking.Add(1)
	return func() {
		defer o.taking.Done()
		o.take(jobs, began)
		o.in.m.mu.Lock()
		defer o.in.m.mu.Unlock()
		o.coming -= n
	}
}

func (j *job) in(src storage.Source) bool {
	return slices.Contains(src.Queues, j.Queue) && slices.Contains(src.Kinds, j.Kind)
}
