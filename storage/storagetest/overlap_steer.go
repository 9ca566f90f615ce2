package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

func (c *caller) cancel() {
	keep := kept(time.Duration(c.rng.IntN(2)) * time.Second)
	c.about("Cancel", func(j *watched) { j.cancels, j.unkept = j.cancels+1, j.unkept || keep.Default == 0 }, func(ctx context.Context, id storage.ID) error {
		_, err := c.d.s.Cancel(ctx, c.now, id, keep)
		return err
	})
}

func (c *caller) hold() {
	ctx, cancel := c.context()
	defer cancel()
	lane := storage.Lane{Queue: []string{"a", "b"}[c.rng.IntN(2)], Kind: "x"}
	if c.one(2) {
		began := c.w.begin()
		if !c.fails("Hold", c.d.s.Hold(ctx, c.now, storage.Hold{Lane: lane, Reason: storage.HoldPaused})) {
			c.w.holding(began, lane)
		}
		return
	}
	defer c.w.releasing(lane)()
	_, err := c.d.s.Release(ctx, c.now, lane, storage.HoldPaused)
	c.fails("Release", err)
}

func (c *caller) redrive() {
	c.about("Redrive", func(j *watched) { j.redriven++ }, func(ctx context.Context, id storage.ID) error {
		step, err := c.d.s.Redrive(ctx, c.now, named(id), "")
		c.w.redrive(step.N)
		return err
	})
}

func (c *caller) runNow() {
	ctx, cancel := c.context()
	defer cancel()
	sel := storage.Selection{Limit: 3}
	if id, ok := c.any(); ok && c.one(2) {
		sel = named(id)
	}
	_, err := c.d.s.RunNow(ctx, c.now, sel, storage.Waiting{First: true})
	c.fails("RunNow", err)
}

func (c *caller) change() {
	var e storage.Edit
	switch c.rng.IntN(4) {
	case 0:
		e.Priority = new(c.rng.IntN(5))
	case 1:
		e.Delay = time.Second
	case 2:
		e.Args = []byte(`{"n":1}`)
	default:
		e.Cancel = new(kept(time.Second))
	}
	asks := func(j *watched) {
		if e.Cancel != nil {
			j.cancels++
		}
	}
	c.about("Change", asks, func(ctx context.Context, id storage.ID) error {
		_, err := c.d.s.Change(ctx, c.now, named(id), e)
		return err
	})
}

func (c *caller) delete() {
	c.about("Delete", func(j *watched) { j.deletes++ }, func(ctx context.Context, id storage.ID) error {
		_, err := c.d.s.Delete(ctx, named(id))
		return err
	})
}

// about makes a call about some job, which may end or change it.
func (c *caller) about(what string, how func(*watched), call func(ctx context.Context, id storage.ID) error) {
	ctx, cancel := c.context()
	defer cancel()
	if id, ok := c.any(); ok {
		c.w.touch(id, what, how)
		c.fails(what, call(ctx, id), storage.ErrNotFound)
	}
}

// release has a key be free when its holder ends.
func (c *caller) release() {
	ctx, cancel := c.context()
	defer cancel()
	key := overlapKeys[c.rng.IntN(len(overlapKeys))]
	defer c.w.freeing(key)()
	id, err := c.d.s.ReleaseUnique(ctx, key)
	if !c.fails("ReleaseUnique", err, storage.ErrNotFound) && !id.IsZero() {
		c.w.names(id, key)
	}
}

// regroup changes how groups are kept in order, or has that apply to all of them.
func (c *caller) regroup() {
	if !c.has["groups"] {
		return
	}
	ctx, cancel := c.context()
	defer cancel()
	queue, set := queuePairs, storage.Settings{storage.SettingGroupLimit: int64(1 + c.rng.IntN(2))}
	if c.one(2) {
		queue, set = queueGroups, storage.Settings{storage.SettingDeadHead: int64(c.rng.IntN(2))}
	}
	if c.one(2) {
		c.fails("Configure", c.d.s.Configure(ctx, storage.Lane{Queue: queue}, set))
		return
	}
	for after := ""; ; {
		next, err := c.d.s.Regroup(ctx, queue, after)
		if c.fails("Regroup", err) || next == "" {
			return
		}
		if after = next; c.over.Load() {
			return
		}
	}
}

func (c *caller) purge() {
	ctx, cancel := c.context()
	defer cancel()
	c.w.purge()
	_, _, err := c.d.s.PurgeFinished(ctx, c.now)
	c.fails("PurgeFinished", err)
}
