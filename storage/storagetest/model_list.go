package storagetest

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/errandq/errand/storage"
)

// listPlace is where a job is in a list: places are compared field by field.
type listPlace struct {
	Section     int
	Queue, Kind string
	First, Then int64
	Key         int64
}

func (p listPlace) compare(q listPlace) int {
	return cmp.Or(cmp.Compare(p.Section, q.Section), strings.Compare(p.Queue, q.Queue), strings.Compare(p.Kind, q.Kind),
		cmp.Compare(p.First, q.First), cmp.Compare(p.Then, q.Then), cmp.Compare(p.Key, q.Key))
}

// place returns where j is in a list in the order of keys, or of states.
func (j *job) place(byKey bool) listPlace {
	if byKey {
		return listPlace{Key: -j.Key}
	}
	switch j.State {
	case storage.Running:
		return listPlace{Section: 1, Key: -j.Key}
	case storage.Ready:
		return listPlace{Section: 2, Queue: j.Queue, Kind: j.Kind, First: -int64(j.Priority), Then: j.DueAt.UnixMicro(), Key: j.Key}
	case storage.Scheduled:
		return listPlace{Section: 3, First: j.DueAt.UnixMicro(), Key: j.Key}
	case storage.Blocked:
		return listPlace{Section: 4, Queue: j.groupName(), Key: j.Key}
	case storage.Dead:
		return listPlace{Section: 5, First: -j.EndedAt.UnixMicro(), Key: -j.Key}
	}
	return listPlace{Section: 6, Key: -j.Key}
}

// Jobs implements [storage.Store].
func (in *instance) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (page storage.Page, err error) {
	if err := in.m.begin(ctx, in); err != nil {
		return page, err
	}
	defer in.m.mu.Unlock()
	var from listPlace
	if after != "" {
		if err := json.Unmarshal([]byte(after), &from); err != nil {
			return page, err
		}
	}
	byKey := f.ByKey()
	all := in.m.where(func(j *job) bool {
		return chooses(f, j) && (after == "" || j.place(byKey).compare(from) > 0)
	}, func(a, b *job) int { return a.place(byKey).compare(b.place(byKey)) })
	for _, j := range all[:min(len(all), max(limit, 0))] {
		r := j.record()
		r.Headers, r.History = nil, nil
		switch n := int64(len(r.Args)); {
		case !f.Args:
			r.Args = nil
		case f.MaxArgs != 0 && n > f.MaxArgs:
			r.Args, r.ArgsBytes = nil, n
		}
		r.Kept = storage.Kept{}
		page.Jobs = append(page.Jobs, r)
	}
	if page.Looked = len(page.Jobs); page.Looked > 0 && len(all) > limit {
		next, err := json.Marshal(all[limit-1].place(byKey))
		page.Next = string(next)
		return page, err
	}
	return page, nil
}
