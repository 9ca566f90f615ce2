package storagetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Publish implements [storage.Publisher].
func (in *instance) Publish(doc []byte) error {
	if err := in.m.begin(context.Background(), in); err != nil {
		return err
	}
	defer in.m.mu.Unlock()
	in.doc = bytes.Clone(doc)
	return nil
}

// Published implements [storage.Publisher].
func (in *instance) Published(ctx context.Context) (out []storage.Published, err error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	for _, other := range in.m.instances {
		switch {
		case other.gone:
		case other.closed:
			out = append(out, storage.Published{Instance: other.name})
		case other.doc != nil || other.longest > 0:
			running := in.m.liveWhere(func(j *job) bool {
				return j.lease.holder == other && j.lease.started && !j.lease.stopping && !j.lease.ended
			}, byKey)
			out = append(out, storage.Published{Instance: other.name, Doc: bytes.Clone(other.doc), Running: len(running)})
		}
	}
	return out, nil
}

// Version implements [storage.Versioner].
func (in *instance) Version(ctx context.Context) (int64, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return 0, err
	}
	defer in.m.mu.Unlock()
	return in.m.calls, nil
}

// Ahead implements [storage.Examiner].
func (in *instance) Ahead(ctx context.Context, id storage.ID, most int) (a storage.Ahead, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return a, err
	}
	defer m.mu.Unlock()
	j := m.find(id)
	switch {
	case j == nil || !j.live():
		return a, storage.ErrNotFound
	case j.State == storage.Blocked && j.Group == "":
		a.Head = m.unique[j.Unique]
		return a, nil
	case j.State == storage.Blocked:
		members := m.members(j.Queue, j.Group)
		head := slices.IndexFunc(members, func(o *job) bool { return o.placed })
		if head < 0 {
			head = slices.IndexFunc(members, func(o *job) bool { return o.blocks })
		}
		if head >= 0 { // else the group is yet to be regrouped
			a.Head = members[head].ID
		}
		for _, o := range members {
			if o.State == storage.Blocked && o.Key < j.Key {
				a.N++
			}
		}
		a.N, a.More = min(a.N, most), a.N > most
		return a, nil
	case j.State != storage.Ready:
		return a, nil
	}
	a.Urgent = j.urgent
	for _, b := range m.buckets(j) {
		of := storage.Bucket{Starts: storage.Starts{Interval: time.Duration(b.interval) * time.Microsecond, Burst: b.burst}, Full: time.UnixMicro(b.full).UTC()}
		if b == m.throttles[storage.Lane{Queue: j.Queue}] {
			a.OfQueue = of
		} else {
			a.OfKind = of
		}
	}
	ahead := m.liveWhere(func(o *job) bool {
		return o.State == storage.Ready && o.Queue == j.Queue && o.Kind == j.Kind && m.ofQueue(o, j) < 0
	}, byKey)
	a.N, a.More = min(len(ahead), most), len(ahead) > most
	return a, nil
}

// Check implements [storage.Examiner].
func (in *instance) Check(ctx context.Context) (c storage.Condition, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return c, err
	}
	defer m.mu.Unlock()
	c.Free = modelFree
	for _, j := range m.liveWhere(func(j *job) bool { return j.State == storage.Ready }, byDue) {
		lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
		if !slices.ContainsFunc(c.Oldest, func(o storage.LaneDue) bool { return o.Lane == lane }) {
			c.Oldest = append(c.Oldest, storage.LaneDue{Lane: lane, DueAt: j.DueAt})
		}
	}
	slices.SortFunc(c.Oldest, func(a, b storage.LaneDue) int { return a.Compare(b.Lane) })
	return c, nil
}
