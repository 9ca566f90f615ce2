package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

const (
	// Whoever changes settings locks the generation first, so that one goes after the other.
	sqlGeneration = `UPDATE errand_meta SET settings = settings + 1`
	sqlSet        = `INSERT INTO errand_setting AS o (queue, kind, name, value) SELECT $1, $2, name, value FROM unnest($3::text[], $4::bigint[]) f(name, value)
ON CONFLICT (queue, kind, name) DO UPDATE SET value = excluded.value`
	// A setting without a name says that the groups of a queue are to be settled anew: 1 since
	// it was set, 2 once a Regroup has begun since. $2 and $3 are what is about to be set.
	sqlRegroupDue = `INSERT INTO errand_setting AS o (queue, kind, name, value) SELECT $1, '', '', 1
FROM unnest($2::text[], $3::bigint[]) f(name, value) LEFT JOIN errand_setting s ON s.queue = $1 AND s.kind = '' AND s.name = f.name
WHERE f.name IN ('group_limit', 'dead_head') AND coalesce(s.value, 0) <> f.value LIMIT 1
ON CONFLICT (queue, kind, name) DO UPDATE SET value = excluded.value`
	sqlUnset = `DELETE FROM errand_setting WHERE queue = $1 AND kind = $2 AND name = ANY($3::text[])`
	// One row at least if the generation is another than $1, else none.
	sqlSettings = `SELECT g.settings, coalesce(s.queue, ''), coalesce(s.kind, ''), coalesce(s.name, ''), coalesce(s.value, 0)
FROM errand_meta g LEFT JOIN errand_setting s ON s.name <> '' WHERE g.settings <> $1::bigint`
	sqlSettingsNow = `SELECT settings FROM errand_meta`
)

// settingsSeen are the settings as the Store has read them last. A call that obeys them reads
// in its own transaction whether there are others.
type settingsSeen struct {
	mu         sync.Mutex
	generation int64
	of         map[storage.Lane]storage.Settings // never changed once it is here
}

func (s *settingsSeen) get() (generation int64, of map[storage.Lane]storage.Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, s.of
}

// note takes note of settings, unless newer ones were noted meanwhile.
func (s *settingsSeen) note(generation int64, of map[storage.Lane]storage.Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation > s.generation {
		s.generation, s.of = generation, of
	}
}

// obeyed are the settings of one generation.
type obeyed struct {
	generation int64
	of         map[storage.Lane]storage.Settings
}

// obey queues the reading of settings that are newer than those that the Store has seen.
// into has those then that apply to the statements that follow.
func (s *Store) obey(b *pgx.Batch, into *obeyed) {
	into.generation, into.of = s.settings.get()
	b.Queue(sqlSettings, into.generation).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		var generation int64
		read := map[storage.Lane]storage.Settings{}
		for rows.Next() {
			var lane storage.Lane
			var name storage.Setting
			var value int64
			if err := rows.Scan(&generation, &lane.Queue, &lane.Kind, &name, &value); err != nil {
				return err
			}
			switch {
			case name == "": // nothing is set
				continue
			case read[lane] == nil:
				read[lane] = storage.Settings{}
			}
			read[lane][name] = value
		}
		if generation != 0 && rows.Err() == nil {
			*into = obeyed{generation, read}
			s.settings.note(generation, read)
		}
		return rows.Err()
	})
}

// errSettings is the error of a transaction in which one statement has met other settings than
// another, as they were changed meanwhile. It runs again.
var errSettings = fmt.Errorf("%w: settings were changed meanwhile", storage.ErrBusy)

// check queues a check that all statements since obey have met these settings.
func (o *obeyed) check(b *pgx.Batch) {
	b.Queue(sqlSettingsNow).QueryRow(func(row pgx.Row) error {
		var now int64
		if err := row.Scan(&now); err != nil {
			return err
		}
		if now != o.generation {
			return errSettings
		}
		return nil
	})
}

// Configure implements [storage.Settler]. Of the settings the Store has those of groups:
// [storage.SettingGroupLimit], [storage.SettingDeadHead] and, but for Newest, [storage.SettingOrder].
func (s *Store) Configure(ctx context.Context, lane storage.Lane, set storage.Settings) error {
	if err := unsupported(set.Needs()...); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	var all, names, unset []string
	var every, values []int64
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all, every = append(all, string(name)), append(every, set[name])
		if set[name] == 0 {
			unset = append(unset, string(name))
			continue
		}
		names, values = append(names, string(name)), append(values, set[name])
	}
	return s.runTold(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlGeneration)
		if lane.Queue != "" && lane.Kind == "" {
			b.Queue(sqlRegroupDue, lane.Queue, all, every)
		}
		if len(names) > 0 {
			b.Queue(sqlSet, lane.Queue, lane.Kind, names, values)
		}
		if len(unset) > 0 {
			b.Queue(sqlUnset, lane.Queue, lane.Kind, unset)
		}
		return s.commit(ctx, c, b)
	})
}

// Settings implements [storage.Settler].
func (s *Store) Settings(ctx context.Context) (all []storage.LaneSettings, err error) {
	var set obeyed
	if err := s.read(ctx, func(b *pgx.Batch) { s.obey(b, &set) }); err != nil {
		return nil, err
	}
	byName := func(a, b storage.Lane) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind)) }
	for _, lane := range slices.SortedFunc(maps.Keys(set.of), byName) {
		all = append(all, storage.LaneSettings{Lane: lane, Settings: maps.Clone(set.of[lane])})
	}
	return all, nil
}
