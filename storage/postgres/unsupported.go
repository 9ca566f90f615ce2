package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// lacks is what a Store does not do yet: the methods below, and what has no method of its own.
var lacks = []storage.Feature{
	"Hold", "Release", "Checkpoint", "Check",
	storage.FeatureTags, storage.FeatureWindows, storage.FeatureUnavailable, storage.FeatureKept, storage.FeatureTogether,
	storage.FeatureNewest, storage.FeatureUrgent,
	of(storage.SettingMaxJobs), of(storage.SettingMaxBytes), of(storage.SettingWhenFull), of(storage.SettingMinFree),
	of(storage.SettingMinFreePriority), of(storage.SettingMaxDead), of(storage.SettingWhenDeadFull), of(storage.SettingRetention),
	of(storage.SettingAging), of(storage.SettingStarts), of(storage.SettingStartsPer), of(storage.SettingStartsBurst),
	of(storage.SettingStartWithin), of(storage.SettingFinishWithin), of(storage.SettingOnExpire),
}

func of(s storage.Setting) storage.Feature { return storage.Feature(s) }

// Lacks implements [storage.Partial].
func (s *Store) Lacks() []storage.Feature { return slices.Clone(lacks) }

// unsupported is the error of a call that needs what the Store does not do yet.
func unsupported(needs ...storage.Feature) error { return storage.Lacking(lacks, needs) }

// missing is unsupported for a method that the Store does not have yet, even if lacks does not name it.
func missing(method storage.Feature) error {
	return storage.Lacking([]storage.Feature{method}, []storage.Feature{method})
}

// able leaves out of an exchange what the Store does not do yet. The result makes the answer one to
// the whole. The error is for what has no result of its own.
func able(x *storage.Exchange) (whole func(*storage.ExchangeResult), err error) {
	if len(x.Hold) > 0 {
		return nil, unsupported("Hold")
	}
	if len(x.Release) > 0 {
		return nil, unsupported("Release")
	}
	for i := range x.Wants {
		if err := unsupported(x.Wants[i].Needs()...); err != nil {
			return nil, err
		}
	}
	all := x.Finish
	var at []int // where those are that it can do
	for i := range all {
		if unsupported(all[i].Needs()...) == nil {
			at = append(at, i)
		}
	}
	if len(at) == len(all) {
		return func(*storage.ExchangeResult) {}, nil
	}
	x.Finish = nil
	for _, i := range at {
		x.Finish = append(x.Finish, all[i])
	}
	return func(res *storage.ExchangeResult) {
		results, then := slices.Repeat([]storage.ItemResult{storage.Unable}, len(all)), map[int][]storage.Enqueued(nil)
		for k, i := range at {
			results[i] = res.Finished[k]
			if added := res.Then[k]; added != nil {
				if then == nil {
					then = map[int][]storage.Enqueued{}
				}
				then[i] = added
			}
		}
		res.Finished, res.Then = results, then
	}, nil
}

// What follows needs what a Store does not do yet. Workers read holds, so these are answered.

// Hold is not supported yet.
func (s *Store) Hold(context.Context, time.Time, storage.Hold) error { return missing("Hold") }

// Release is not supported yet.
func (s *Store) Release(context.Context, time.Time, storage.Lane, string) (bool, error) {
	return false, missing("Release")
}

// Holds returns none: there can be none yet.
func (s *Store) Holds(ctx context.Context, _ time.Time) ([]storage.HoldState, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.leave()
	return nil, nil
}

// Checkpoint is not supported yet.
func (s *Store) Checkpoint(context.Context, storage.Checkpoint) (storage.ItemResult, error) {
	return 0, missing("Checkpoint")
}

// Check is not supported yet.
func (s *Store) Check(context.Context) (storage.Condition, error) {
	return storage.Condition{}, missing("Check")
}

// NotifyEvicted calls nobody, as nothing is evicted yet.
func (s *Store) NotifyEvicted(func(time.Time, []storage.Evicted)) (cancel func()) { return func() {} }
