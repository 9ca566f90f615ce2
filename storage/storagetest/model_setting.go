package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Configure implements [storage.Settler].
func (in *instance) Configure(ctx context.Context, lane storage.Lane, s storage.Settings) error {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.configure(ctx, lane, s)
	return nil
}

// ConfigureTx implements [storage.TxEnqueuer].
func (in *instance) ConfigureTx(ctx context.Context, tx any, lane storage.Lane, s storage.Settings) error {
	return in.inside(ctx, tx, func(_ *transaction, own *instance) error {
		own.m.configure(ctx, lane, s)
		return nil
	})
}

func (m *Memory) configure(ctx context.Context, lane storage.Lane, s storage.Settings) {
	all := maps.Clone(m.settings[lane])
	if all == nil {
		all = storage.Settings{}
	}
	for name, value := range s {
		if all[name] != value {
			m.did(ctx, 0, false)
			break
		}
	}
	for _, name := range []storage.Setting{storage.SettingGroupLimit, storage.SettingDeadHead} {
		if value, set := s[name]; set && value != all[name] && lane.Kind == "" {
			m.regroups.ungrouped[lane.Queue] = true
		}
	}
	if n, set := s[storage.SettingStarts]; set && n == 0 {
		delete(m.throttles, lane)
	}
	maps.Copy(all, s)
	maps.DeleteFunc(all, func(_ storage.Setting, value int64) bool { return value == 0 })
	m.settings[lane] = all
}

// Settings implements [storage.Settler].
func (in *instance) Settings(ctx context.Context) (out []storage.LaneSettings, err error) {
	m := in.m
	if err := m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for lane, s := range m.settings {
		if len(s) > 0 {
			out = append(out, storage.LaneSettings{Lane: lane, Settings: maps.Clone(s)})
		}
	}
	slices.SortFunc(out, func(a, b storage.LaneSettings) int { return a.Lane.Compare(b.Lane) })
	return out, nil
}

// keepFor returns how long j is kept when it is finished.
func (m *Memory) keepFor(j *job, r storage.Retention) time.Duration {
	if us := m.setting(j.Queue, j.Kind, storage.SettingRetention); us != 0 {
		return time.Duration(us) * time.Microsecond
	}
	return r.Of(j.Queue, j.Kind)
}

// setting returns what is set for a lane, or else for its kind, its queue or all.
func (m *Memory) setting(queue, kind string, name storage.Setting) int64 {
	lanes := []storage.Lane{{Queue: queue, Kind: kind}, {Kind: kind}, {Queue: queue}, {}}
	if queue == storage.BulkQueue {
		lanes = []storage.Lane{lanes[0], lanes[2]}
	}
	for _, l := range lanes {
		if value := m.settings[l][name]; value != 0 {
			return value
		}
	}
	return 0
}

// withDefaults sets what n has not and is set for its lane.
func (m *Memory) withDefaults(n storage.NewJob) storage.NewJob {
	if n.StartWithin <= 0 {
		n.StartWithin = time.Duration(m.setting(n.Queue, n.Kind, storage.SettingStartWithin)) * time.Microsecond
	}
	if n.FinishWithin <= 0 {
		n.FinishWithin = time.Duration(m.setting(n.Queue, n.Kind, storage.SettingFinishWithin)) * time.Microsecond
	}
	if n.OnExpire == "" {
		n.OnExpire = []storage.State{0: "", storage.ExpireFinished: storage.Expired, storage.ExpireDead: storage.Dead}[m.setting(n.Queue, n.Kind, storage.SettingOnExpire)]
	}
	return n
}
