package storagetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// partly is a store that lacks something.
type partly struct {
	*hooks
	lacks []storage.Feature
}

func (p *partly) Lacks() []storage.Feature { return p.lacks }

// soundPartly lacks tags, an outcome, and a setting.
func soundPartly(in *instance) *partly {
	p := &partly{sound(in), []storage.Feature{storage.FeatureTags, storage.FeatureWindows, storage.FeatureUnavailable, storage.Feature(storage.SettingMaxJobs)}}
	h := p.hooks
	h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
		for i := range jobs {
			if err := storage.Lacking(p.lacks, jobs[i].Needs()); err != nil {
				return nil, err
			}
		}
		return in.Enqueue(ctx, now, jobs)
	}
	h.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
		if err := storage.Lacking(p.lacks, s.Needs()); err != nil {
			return err
		}
		return in.Configure(ctx, lane, s)
	}
	h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		x.Finish = slices.Clone(x.Finish)
		unable := map[int]bool{}
		for i := range x.Finish {
			if f := &x.Finish[i]; storage.Lacking(p.lacks, f.Needs()) != nil {
				unable[i], *f = true, storage.Finish{Lease: f.Lease} // which is refused
			}
		}
		res, err := in.Exchange(ctx, now, x)
		for i := range unable {
			if err == nil {
				res.Finished[i] = storage.Unable
			}
		}
		return res, err
	}
	return p
}

// lackingBadly has f break a store that lacks something.
func lackingBadly(f func(in *instance, p *partly)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		p := soundPartly(in)
		f(in, p)
		return p
	}
}

var partialFaults = []fault{
	{"tags are taken, and not kept", "partial_calls", lackingBadly(func(in *instance, p *partly) {
		p.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				jobs[i].Tags = nil
			}
			return in.Enqueue(ctx, now, jobs)
		}
	})},
	{"a setting is taken, and not obeyed", "partial_calls", lackingBadly(func(in *instance, p *partly) { p.configure = in.Configure })},
	{"nothing takes a setting back", "partial_calls", lackingBadly(func(in *instance, p *partly) {
		p.configure = func(ctx context.Context, lane storage.Lane, s storage.Settings) error {
			for name := range s {
				if err := storage.Lacking(p.lacks, []storage.Feature{storage.Feature(name)}); err != nil {
					return err
				}
			}
			return in.Configure(ctx, lane, s)
		}
	})},
	{"it says that it lacks what there is not", "partial_calls", lackingBadly(func(_ *instance, p *partly) { p.lacks = append(p.lacks, "Tags") })},
	{"it lacks what it does not say", "partial_calls", lackingBadly(func(_ *instance, p *partly) {
		p.configure = func(context.Context, storage.Lane, storage.Settings) error {
			return storage.ErrLacking
		}
	})},
	{"one item fails the exchange", "partial_items", lackingBadly(func(in *instance, p *partly) {
		p.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			for i := range x.Finish {
				if err := storage.Lacking(p.lacks, x.Finish[i].Needs()); err != nil {
					return storage.ExchangeResult{}, err
				}
			}
			return in.Exchange(ctx, now, x)
		}
	})},
	{"an item that it lacks is refused as if it made no sense", "partial_items", lackingBadly(func(_ *instance, p *partly) {
		exchange := p.exchange
		p.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := exchange(ctx, now, x)
			for i, r := range res.Finished {
				if r == storage.Unable {
					res.Finished[i] = storage.Refused
				}
			}
			return res, err
		}
	})},
	{"an item that it lacks takes effect", "partial_items", lackingBadly(func(in *instance, p *partly) {
		p.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			for i := range x.Finish {
				if storage.Lacking(p.lacks, x.Finish[i].Needs()) != nil && err == nil {
					res.Finished[i] = storage.Unable
				}
			}
			return res, err
		}
	})},
}

// A store that lacks something and says so passes the cases about that.
func TestBroken_soundPartlyPasses(t *testing.T) {
	for _, c := range partialCases {
		if got := record(t, func(t testing.TB) {
			c.check(t, newBroken(func(in *instance) storage.Store { return soundPartly(in) }))
		}); got != "" {
			t.Errorf("%s %s", c.name, got)
		}
	}
}
