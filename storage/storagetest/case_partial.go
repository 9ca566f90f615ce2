package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var partialCases = []testCase{
	{"partial_calls", `A call that needs any of that returns [ErrLacking] and changes nothing.
A setting that is set to zero needs nothing.`, func(f *fixture) {
		lacks := f.partial
		f.partial = nil // nothing here is skipped for it
		l := f.run(f.s)
		before := f.record(l.ID)
		calls := f.featureCalls(l)
		for _, feature := range lacks {
			if call := calls[feature]; call == nil && !slices.Contains(itemFeatures, feature) {
				f.Errorf("there is nothing to lack that is called %q", feature)
			}
		}
		for feature, call := range calls {
			lacking := slices.Contains(lacks, feature)
			if err := call(); errors.Is(err, storage.ErrLacking) != lacking || lacking && !errors.Is(err, storage.ErrUnsupportedDB) {
				f.Errorf("lacking %s: %t; the error is %v", feature, lacking, err)
			}
		}
		if len(lacks) == 0 {
			return
		}
		for _, name := range settingNames {
			if slices.Contains(lacks, storage.Feature(name)) {
				f.configure(f.s, storage.Lane{Queue: "p"}, storage.Settings{name: 0})
			}
		}
		all, err := f.s.Settings(f.ctx)
		f.must(err)
		for _, s := range all {
			for name := range s.Settings {
				if slices.Contains(lacks, storage.Feature(name)) {
					f.Errorf("%s is set, and the store lacks it", name)
				}
			}
		}
		if slices.Contains(lacks, storage.FeatureTags) && slices.Contains(lacks, storage.FeatureWindows) {
			f.counts(storage.Count{Queue: queue, Kind: kind, State: storage.Running, N: 1})
		}
		f.same("the job", f.record(l.ID), before)
	}},

	{"partial_items", `A Finish of an Exchange that does is [Unable] alone: its lease is as it was, and all else takes effect.
Unable: the Store lacks what the item needs, see [Partial]; nothing was changed.`, func(f *fixture) {
		lacks := f.partial
		f.partial = nil // nothing here is skipped for it
		for _, feature := range itemFeatures {
			var leases []storage.Leased
			for range 3 {
				leases = append(leases, f.run(f.s))
			}
			next := f.add(newJob())[0]
			odd := storage.Finish{Lease: leases[1].Lease, Outcome: storage.OutcomeDone}
			switch feature {
			case storage.FeatureUnavailable:
				odd.Outcome, odd.DueAt = storage.OutcomeUnavailable, f.now.Add(time.Hour)
			case storage.FeatureKept:
				odd.Result = []byte(`1`)
			case storage.FeatureTags:
				odd.Then = []storage.NewJob{newJob(), newJob(func(j *storage.NewJob) { j.Tags = []string{"t"} })}
			case storage.FeatureWindows:
				odd.Then = []storage.NewJob{newJob(startWithin(time.Hour))}
			}
			res := f.exchange(f.s, storage.Exchange{
				LeaseDuration: time.Minute, Extend: []storage.Lease{leases[1].Lease}, Wants: []storage.Want{{Queues: []string{queue}, Kinds: []string{kind}, N: 1}},
				Finish: []storage.Finish{
					{Lease: leases[0].Lease, Outcome: storage.OutcomeDone}, odd,
					{Lease: leases[2].Lease, Outcome: storage.OutcomeDone, Then: []storage.NewJob{newJob(func(j *storage.NewJob) { j.DueAt = f.now.Add(time.Hour) })}},
				},
				Retention: kept(time.Hour),
			})
			want := storage.Applied
			if slices.Contains(lacks, feature) {
				want = storage.Unable
			}
			if !slices.Equal(res.Finished, []storage.ItemResult{storage.Applied, want, storage.Applied}) || len(res.Then[2]) != 1 || (len(res.Then[1]) > 0) != (want == storage.Applied && odd.Then != nil) {
				f.Fatalf("%s: Finished %v and Then %v, want the second to be %v", feature, res.Finished, res.Then, want)
			}
			if len(res.Leased) != 1 || res.Leased[0].ID != next {
				f.Errorf("%s: leased %v, want %v", feature, res.Leased, next)
			}
			f.is(storage.Done, leases[0].ID, leases[2].ID)
			if want == storage.Unable {
				f.is(storage.Running, leases[1].ID)
				f.apply(f.s, storage.Finish{Lease: leases[1].Lease, Outcome: storage.OutcomeDone})
			}
			for _, l := range res.Leased {
				f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
			}
			f.endReady()
		}
	}},
}

// itemFeatures are those that an item of an exchange may need.
var itemFeatures = []storage.Feature{storage.FeatureUnavailable, storage.FeatureKept, storage.FeatureTags, storage.FeatureWindows}

// endReady has no job be ready.
func (f *fixture) endReady() {
	f.Helper()
	for {
		all := f.lease(f.s, 10)
		if len(all) == 0 {
			return
		}
		for _, l := range all {
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}
}

var settingNames = []storage.Setting{
	storage.SettingMaxJobs, storage.SettingMaxBytes, storage.SettingWhenFull, storage.SettingMinFree, storage.SettingMinFreePriority,
	storage.SettingMaxDead, storage.SettingWhenDeadFull, storage.SettingRetention, storage.SettingGroupLimit, storage.SettingDeadHead,
	storage.SettingOrder, storage.SettingAging, storage.SettingStarts, storage.SettingStartsPer, storage.SettingStartsBurst,
	storage.SettingStartWithin, storage.SettingFinishWithin, storage.SettingOnExpire,
}

// featureCalls returns a call that needs each feature which a call may need. l is a lease.
func (f *fixture) featureCalls(l storage.Leased) map[storage.Feature]func() error {
	none := storage.Selection{IDs: []storage.ID{{1}}}
	enqueue := func(change func(*storage.NewJob)) func() error {
		return func() error {
			_, err := f.s.Enqueue(f.ctx, f.now, []storage.NewJob{newJob(change)})
			return err
		}
	}
	lane := storage.Lane{Queue: "p"}
	step := func(call func(context.Context) (storage.Step, error)) func() error {
		return func() error { _, err := call(f.ctx); return err }
	}
	calls := map[storage.Feature]func() error{
		storage.FeatureTags:    enqueue(func(j *storage.NewJob) { j.Tags = []string{"t"} }),
		storage.FeatureWindows: enqueue(startWithin(time.Hour)),
		storage.FeatureTogether: func() error {
			_, err := f.s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"p"}, Kinds: []string{kind}, N: 2, ByGroup: 2}}})
			return err
		},
		"Hold":    func() error { return f.s.Hold(f.ctx, f.now, storage.Hold{Lane: lane, Reason: "r"}) },
		"Release": func() error { _, err := f.s.Release(f.ctx, f.now, lane, "r"); return err },
		"Stats":   func() error { _, err := f.s.Stats(f.ctx); return err },
		"Causes":  func() error { _, err := f.s.Causes(f.ctx, lane, 1); return err },
		"Deaths":  func() error { _, err := f.s.Deaths(f.ctx, []int64{1}, f.now, time.Hour, 1, 1); return err },
		"Checkpoint": func() error {
			_, err := f.s.Checkpoint(f.ctx, storage.Checkpoint{Lease: storage.Lease{Key: l.Key, Token: l.Token + 1}, Data: []byte(`1`)})
			return err
		},
		"States":  func() error { _, err := f.s.States(f.ctx, []storage.ID{l.ID}); return err },
		"Jobs":    func() error { _, err := f.s.Jobs(f.ctx, storage.Filter{}, "", 1); return err },
		"Redrive": step(func(ctx context.Context) (storage.Step, error) { return f.s.Redrive(ctx, f.now, none, "") }),
		"RunNow": step(func(ctx context.Context) (storage.Step, error) {
			return f.s.RunNow(ctx, f.now, storage.Selection{Filter: storage.Filter{Queue: "none"}}, storage.Waiting{})
		}),
		storage.FeatureUrgent: step(func(ctx context.Context) (storage.Step, error) {
			return f.s.RunNow(ctx, f.now, none, storage.Waiting{})
		}),
		"Change": step(func(ctx context.Context) (storage.Step, error) {
			return f.s.Change(ctx, f.now, none, storage.Edit{Priority: new(1)})
		}),
		"Delete": step(func(ctx context.Context) (storage.Step, error) { return f.s.Delete(ctx, none) }),
		"Ahead":  func() error { _, err := f.s.Ahead(f.ctx, l.ID, 1); return err },
		"Check":  func() error { _, err := f.s.Check(f.ctx); return err },
	}
	configure := func(name storage.Setting, value int64) func() error {
		return func() error { return f.s.Configure(f.ctx, lane, storage.Settings{name: value}) }
	}
	for _, name := range settingNames {
		calls[storage.Feature(name)] = configure(name, 1)
	}
	calls[storage.Feature(storage.SettingOrder)] = configure(storage.SettingOrder, int64(storage.Turns))
	calls[storage.FeatureNewest] = configure(storage.SettingOrder, int64(storage.Newest))
	return calls
}
