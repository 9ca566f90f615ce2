package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlSettings = `SELECT queue, kind, name, value FROM main.errand_setting ORDER BY queue, kind`
	// As one lane has them, without those that it has from others.
	sqlSettingsOf    = `SELECT name, value FROM main.errand_setting WHERE queue = ?1 AND kind = ?2`
	sqlSettingsSince = `SELECT queue, kind, name, value FROM main.errand_setting WHERE changed > ?1`
	sqlUnsetAt       = `SELECT n FROM main.errand_number WHERE id = 9`
	sqlNoteUnset     = `INSERT INTO main.errand_number (id, n) VALUES (9, ?1) ON CONFLICT DO UPDATE SET n = excluded.n`
	sqlSet           = `INSERT INTO main.errand_setting (queue, kind, name, value, changed) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE SET value = excluded.value, changed = excluded.changed`
	sqlUnset = `DELETE FROM main.errand_setting WHERE queue = ?1 AND kind = ?2 AND name = ?3`
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

// followSettings returns the settings that are stored, given those that are known of a
// generation. Of these it changes nothing. It returns the lanes that are set otherwise;
// whole is true if these may be any, as everything was read.
func followSettings(db asker, known laneSettings, since int64) (all laneSettings, lanes []storage.Lane, whole bool, err error) {
	var unset int64
	if err := db.row(sqlUnsetAt, nil, &unset); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, nil, false, err
	}
	if since == 0 || unset > since {
		all, err = readSettings(db)
		return all, nil, true, err
	}
	news := map[storage.Lane]storage.Settings{}
	var lane storage.Lane
	var name string
	var value int64
	err = db.each(sqlSettingsSince, []any{since}, []any{&lane.Queue, &lane.Kind, &name, &value}, func() {
		if news[lane] == nil {
			news[lane] = storage.Settings{}
		}
		news[lane][storage.Setting(name)] = value
	})
	if err != nil || len(news) == 0 {
		return known, nil, false, err
	}
	return known.with(news), slices.Collect(maps.Keys(news)), false, nil
}

// with returns the settings as changes leave them.
func (all laneSettings) with(changes map[storage.Lane]storage.Settings) laneSettings {
	next := maps.Clone(all)
	if next == nil {
		next = laneSettings{}
	}
	for lane, set := range changes {
		own := storage.Settings{}
		maps.Copy(own, next[lane])
		maps.Copy(own, set)
		maps.DeleteFunc(own, func(_ storage.Setting, value int64) bool { return value == 0 })
		if next[lane] = own; len(own) == 0 {
			delete(next, lane)
		}
	}
	return next
}

// obey takes over settings, of which those of some lanes have changed, or with whole of
// any; c is locked.
func (c *cache) obey(set laneSettings, lanes []storage.Lane, whole bool) {
	if !whole && len(lanes) == 0 {
		return
	}
	c.settings = set
	o, st := c.orders, c.starts
	if whole {
		o, st = set.orders(), set.starts()
	} else {
		o, st = maps.Clone(o), maps.Clone(st)
		for _, lane := range lanes {
			delete(o, lane.Queue)
			delete(st, lane)
			ofQueue := storage.Lane{Queue: lane.Queue}
			one := laneSettings{lane: set[lane], ofQueue: set[ofQueue]}
			o, st = joined(o, one.orders()), joined(st, one.starts())
		}
	}
	if !maps.Equal(o, c.orders) {
		c.orders = o
		c.reordered++
	}
	if !maps.Equal(st, c.starts) {
		c.starts = st
		c.restarted++
	}
}

// joined adds what is in b to a, which may be nil.
func joined[M ~map[K]V, K, V comparable](a, b M) M {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
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
	if l.Queue == storage.BulkQueue {
		return cmp.Or(all[l][name], all[storage.Lane{Queue: l.Queue}][name])
	}
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
		run: func(t *tx) error { return t.configure(ctx, lane, set) },
	})
}

// ConfigureTx implements [storage.TxEnqueuer].
func (s *Store) ConfigureTx(ctx context.Context, in any, lane storage.Lane, set storage.Settings) error {
	return s.inside(ctx, in, false, false, func(t *tx) error { return t.configure(ctx, lane, set) })
}

func (t *tx) configure(ctx context.Context, lane storage.Lane, set storage.Settings) error {
	all, err := t.settings()
	if err != nil || all.has(lane, set) {
		return err
	}
	if err := t.did(ctx, 0); err != nil {
		return err
	}
	changes := storage.Settings{}
	for name, value := range set {
		if err := t.writeSetting(lane, name, value); err != nil {
			return err
		}
		changes[name] = value
		ofGroups := name == storage.SettingGroupLimit || name == storage.SettingDeadHead
		if ofGroups && lane.Kind == "" && lane.Queue != "" && value != all[lane][name] {
			if err := t.writeSetting(lane, settingRegroup, rules.RegroupDue); err != nil {
				return err
			}
			changes[settingRegroup] = rules.RegroupDue
		}
	}
	t.setAs(all, lane, changes)
	t.notifyAll(storage.Event{})
	return nil
}

// setAs notes what was written of the settings of a lane, which were all before.
func (t *tx) setAs(all laneSettings, lane storage.Lane, changes storage.Settings) {
	next := all.with(map[storage.Lane]storage.Settings{lane: changes})
	t.set, t.reset = &next, true
	t.meta.gen++
}

// writeSetting writes one setting of a lane. setAs must follow.
func (t *tx) writeSetting(lane storage.Lane, name storage.Setting, value int64) (err error) {
	if value == 0 {
		var n int64
		if n, err = t.execCount(sqlUnset, lane.Queue, lane.Kind, string(name)); err == nil && n > 0 {
			_, err = t.exec(sqlNoteUnset, t.meta.gen+1)
		}
		if err == nil && name == storage.SettingStarts {
			_, err = t.exec(sqlDropBucket, lane.Queue, lane.Kind)
			t.comeBack(lane)
		}
	} else {
		_, err = t.exec(sqlSet, lane.Queue, lane.Kind, string(name), value, t.meta.gen+1)
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
		known, since := t.store.cache.knownSettings()
		if since > t.was.gen {
			since = 0
		}
		all, _, _, err := followSettings(t, known, since)
		if err != nil {
			return nil, err
		}
		t.set = &all
	}
	return *t.set, nil
}

// knownSettings returns the settings, and the generation of which they are.
func (c *cache) knownSettings() (laneSettings, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settings, c.generation
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
