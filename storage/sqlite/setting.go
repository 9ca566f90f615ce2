package sqlite

import (
	"cmp"
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

const (
	sqlSettings = `SELECT queue, kind, name, value FROM errand_setting ORDER BY queue, kind`
	// As one lane has them, without those that it has from others.
	sqlSettingsOf = `SELECT name, value FROM errand_setting WHERE queue = ?1 AND kind = ?2`
	sqlSet        = `INSERT INTO errand_setting (queue, kind, name, value) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET value = excluded.value`
	sqlUnset = `DELETE FROM errand_setting WHERE queue = ?1 AND kind = ?2 AND name = ?3`
)

// laneSettings are what is set, by lane, see [storage.Settler]. A map that others have is
// not changed any more.
type laneSettings map[storage.Lane]storage.Settings

// obeyed is what a transaction knows of settings and caps.
type obeyed struct {
	set     *laneSettings // as the transaction has left them, if it has read them
	reset   bool          // it has changed settings
	scopes  capScopes     // whose use is known
	evicted []evicted     // by its calls
	died    []death       // in the exchange under way
}

// readSettings returns the settings that are stored, nil if there are none.
func readSettings(db asker) (all laneSettings, err error) {
	var lane storage.Lane
	var name string
	var value int64
	err = db.each(sqlSettings, nil, []any{&lane.Queue, &lane.Kind, &name, &value}, func() {
		if all == nil {
			all = laneSettings{}
		}
		if all[lane] == nil {
			all[lane] = storage.Settings{}
		}
		all[lane][storage.Setting(name)] = value
	})
	return all, err
}

// has reports whether a lane is set as s says.
func (all laneSettings) has(lane storage.Lane, s storage.Settings) bool {
	for name, value := range s {
		if all[lane][name] != value {
			return false
		}
	}
	return true
}

// of returns a setting of a lane: its own, or else that of its kind, its queue or the
// database, the first of these that is set.
func (all laneSettings) of(l storage.Lane, name storage.Setting) int64 {
	return cmp.Or(all[l][name], all[storage.Lane{Kind: l.Kind}][name], all[storage.Lane{Queue: l.Queue}][name], all[storage.Lane{}][name])
}

// Configure implements [storage.Settler]. It writes nothing if all is set so already.
func (s *Store) Configure(ctx context.Context, lane storage.Lane, set storage.Settings) error {
	return s.submit(ctx, &request{
		ends: true, work: 1,
		probe: func(t *tx) (bool, error) {
			all, err := t.settings()
			return !all.has(lane, set), err
		},
		run: func(t *tx) error { return t.configure(lane, set) },
	})
}

func (t *tx) configure(lane storage.Lane, set storage.Settings) error {
	all, err := t.settings()
	if err != nil || all.has(lane, set) {
		return err
	}
	for name, value := range set {
		if err := t.writeSetting(lane, name, value); err != nil {
			return err
		}
		ofGroups := name == storage.SettingGroupLimit || name == storage.SettingDeadHead
		if ofGroups && lane.Kind == "" && lane.Queue != "" && value != all[lane][name] {
			if err := t.writeSetting(lane, settingRegroup, regroupDue); err != nil {
				return err
			}
		}
	}
	t.groups.free = nil
	t.meta.gen++
	t.reset = true
	t.set = nil
	t.notifyAll(storage.Event{})
	return nil
}

// writeSetting writes one setting of a lane.
func (t *tx) writeSetting(lane storage.Lane, name storage.Setting, value int64) (err error) {
	if value == 0 {
		_, err = t.exec(sqlUnset, lane.Queue, lane.Kind, string(name))
		if err == nil && name == storage.SettingStarts {
			_, err = t.exec(sqlDropBucket, lane.Queue, lane.Kind)
			t.comeBack(lane)
		}
	} else {
		_, err = t.exec(sqlSet, lane.Queue, lane.Kind, string(name), value)
	}
	return err
}

// settings returns the settings as the transaction has left them.
func (t *tx) settings() (laneSettings, error) {
	if !t.reset {
		if all, ok := t.store.cache.settingsAt(t.was.gen); ok {
			return all, nil
		}
	}
	if t.set == nil { // no process has told the cache of them yet
		all, err := readSettings(t)
		if err != nil {
			return nil, err
		}
		t.set = &all
	}
	return *t.set, nil
}

// settingsAt returns the settings of a generation. It reports false if the cache is of
// another one.
func (c *cache) settingsAt(generation int64) (laneSettings, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settings, c.generation == generation
}

// Settings implements [storage.Settler].
func (s *Store) Settings(ctx context.Context) (out []storage.LaneSettings, err error) {
	var rows []struct {
		Queue, Kind string
		Name        storage.Setting
		Value       int64
	}
	err = s.reading(ctx, s.inner, func(tx *sqlx.Tx) error { return tx.Select(&rows, sqlSettings) })
	for _, r := range rows {
		if r.Name == settingRegroup {
			continue
		}
		lane := storage.Lane{Queue: r.Queue, Kind: r.Kind}
		if n := len(out); n == 0 || out[n-1].Lane != lane {
			out = append(out, storage.LaneSettings{Lane: lane, Settings: storage.Settings{}})
		}
		out[len(out)-1].Settings[r.Name] = r.Value
	}
	return out, err
}
