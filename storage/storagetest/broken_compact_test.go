package storagetest

import (
	"context"

	"github.com/errandq/errand/storage"
)

// compacts is an instance of which Compact has a fault.
type compacts struct {
	*hooks
	compact func(ctx context.Context) (int64, error)
}

func (c *compacts) Compact(ctx context.Context) (int64, error) { return c.compact(ctx) }

func compacting(f func(in *instance, c *compacts)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		c := &compacts{hooks: sound(in), compact: in.Compact}
		f(in, c)
		return c
	}
}

var compactFaults = []fault{
	{"history is given back", "compact", compacting(func(in *instance, c *compacts) {
		c.compact = func(ctx context.Context) (int64, error) {
			freed, err := in.Compact(ctx)
			if err == nil {
				in.m.locked(func() {
					for _, j := range in.m.where(func(j *job) bool { return j.State == storage.Dead }, byKey) {
						j.History = nil
					}
				})
			}
			return freed, err
		}
	})},
	{"less than nothing is given back", "compact", compacting(func(in *instance, c *compacts) {
		c.compact = func(ctx context.Context) (int64, error) {
			freed, err := in.Compact(ctx)
			return freed - 1, err
		}
	})},
	{"a closed store is made smaller", "compact", compacting(func(in *instance, c *compacts) {
		c.compact = func(context.Context) (int64, error) { return 0, nil }
	})},
}
