package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// looks is an instance of which Publish, Published or Ahead has a fault.
type looks struct {
	*hooks
	publish   func(doc []byte) error
	published func(all []storage.Published) []storage.Published
	ahead     func(id storage.ID, most int, a storage.Ahead) storage.Ahead
	condition func(c *storage.Condition)
	version   func() int64
}

func looking(f func(in *instance, l *looks)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		l := &looks{hooks: sound(in)}
		f(in, l)
		return l
	}
}

func (l *looks) Publish(doc []byte) error {
	if l.publish != nil {
		return l.publish(doc)
	}
	return l.hooks.Publish(doc)
}

func (l *looks) Version(ctx context.Context) (int64, error) {
	n, err := l.hooks.Version(ctx)
	if l.version != nil && err == nil {
		n = l.version()
	}
	return n, err
}

func (l *looks) Published(ctx context.Context) ([]storage.Published, error) {
	all, err := l.hooks.Published(ctx)
	if l.published != nil && err == nil {
		all = l.published(all)
	}
	return all, err
}

func (l *looks) Ahead(ctx context.Context, id storage.ID, most int) (storage.Ahead, error) {
	a, err := l.hooks.Ahead(ctx, id, most)
	if l.ahead != nil && err == nil {
		a = l.ahead(id, most, a)
	}
	return a, err
}

func (l *looks) Check(ctx context.Context) (storage.Condition, error) {
	c, err := l.hooks.Check(ctx)
	if l.condition != nil {
		l.condition(&c)
	}
	return c, err
}

var lookFaults = []fault{
	{"a version that knows only of this process", "version", looking(func(in *instance, l *looks) {
		own := int64(0)
		l.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			own++
			return in.Enqueue(ctx, now, jobs)
		}
		l.version = func() int64 { return own }
	})},
	{"a version that stands still", "version", looking(func(_ *instance, l *looks) { l.version = func() int64 { return 7 } })},
	{"the first of each lane to be leased counts as its oldest", "check", looking(func(in *instance, l *looks) {
		l.condition = func(c *storage.Condition) {
			in.m.locked(func() {
				for i, o := range c.Oldest {
					of := func(j *job) bool { return j.State == storage.Ready && j.Queue == o.Queue && j.Kind == o.Kind }
					c.Oldest[i].DueAt = in.m.where(of, byPriority)[0].DueAt
				}
			})
		}
	})},
	{"nothing can be written", "check", looking(func(_ *instance, l *looks) {
		l.condition = func(c *storage.Condition) { c.Write = storage.ErrBusy }
	})},
	{"the first document stays", "publish", looking(func(in *instance, l *looks) {
		l.publish = func(doc []byte) error {
			if in.doc != nil {
				return nil
			}
			return in.Publish(doc)
		}
	})},
	{"the rest of a longer document stays", "publish", looking(func(in *instance, l *looks) {
		l.publish = func(doc []byte) error {
			if doc != nil && len(doc) < len(in.doc) {
				doc = slices.Concat(doc, in.doc[len(doc):])
			}
			return in.Publish(doc)
		}
	})},
	{"the own document is left out", "publish", looking(func(in *instance, l *looks) {
		l.published = func(all []storage.Published) []storage.Published {
			return slices.DeleteFunc(all, func(p storage.Published) bool { return p.Instance == in.name })
		}
	})},
	{"handlers that are stopped run", "publish_running", looking(func(in *instance, l *looks) {
		l.published = func(all []storage.Published) []storage.Published {
			in.m.locked(func() {
				for i := range all {
					for _, j := range in.m.jobs {
						if l := &j.lease; j.State == storage.Running && l.holder != nil && l.holder.name == all[i].Instance && l.stopping && !l.ended {
							all[i].Running++
						}
					}
				}
			})
			return all
		}
	})},
	{"what is published early is lost", "publish_first", looking(func(in *instance, l *looks) {
		l.publish = func(doc []byte) error {
			if in.longest == 0 {
				return nil
			}
			return in.Publish(doc)
		}
	})},
	{"the document is the caller's", "publish_keeps", looking(func(in *instance, l *looks) {
		l.publish = func(doc []byte) error {
			in.m.locked(func() { in.doc = doc })
			return nil
		}
	})},
	{"the dead go on to show", "publish_end", looking(func(in *instance, l *looks) {
		l.published = func([]storage.Published) (all []storage.Published) {
			for _, other := range in.m.instances {
				all = append(all, storage.Published{Instance: other.name, Doc: other.doc})
			}
			return all
		}
	})},
	{"a mixture is shown", "publish_whole", looking(func(in *instance, l *looks) {
		l.published = func(all []storage.Published) []storage.Published {
			for i, p := range all {
				if len(p.Doc) > 40_000 {
					copy(all[i].Doc, "b")
				}
			}
			return all
		}
	})},
	{"jobs that come later are counted", "ahead", looking(func(in *instance, l *looks) {
		l.ahead = func(_ storage.ID, most int, a storage.Ahead) storage.Ahead {
			a.N = min(a.N+1, most)
			return a
		}
	})},
	{"there are never more", "ahead", looking(func(_ *instance, l *looks) {
		l.ahead = func(_ storage.ID, _ int, a storage.Ahead) storage.Ahead {
			a.More = false
			return a
		}
	})},
	{"priorities do not count", "ahead", looking(func(in *instance, l *looks) {
		l.ahead = func(id storage.ID, most int, a storage.Ahead) storage.Ahead {
			in.m.locked(func() {
				j := in.m.find(id)
				a.N = len(in.m.where(func(o *job) bool {
					return o.State == storage.Ready && o.Queue == j.Queue && o.Kind == j.Kind && (byDue(o, j) < 0 || byDue(o, j) == 0 && o.Key < j.Key)
				}, byKey))
			})
			a.N, a.More = min(a.N, most), a.N > most
			return a
		}
	})},
	{"nobody is urgent", "ahead_states", looking(func(_ *instance, l *looks) {
		l.ahead = func(_ storage.ID, _ int, a storage.Ahead) storage.Ahead {
			a.Urgent = false
			return a
		}
	})},
}
