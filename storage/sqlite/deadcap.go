package sqlite

import (
	"cmp"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	// The first of a time go on where the last page ended, which may have ended among
	// many of one time.
	sqlOldestDead = `SELECT ended_at, id, options FROM main.errand_dead WHERE ended_at = ?1 AND id > ?2
UNION ALL SELECT ended_at, id, options FROM main.errand_dead WHERE ended_at > ?1 ORDER BY ended_at, id LIMIT 110`
	sqlOldestDeadOf = `SELECT ended_at, id, options FROM main.errand_dead WHERE lane = ?3 AND ended_at = ?1 AND id > ?2
UNION ALL SELECT ended_at, id, options FROM main.errand_dead WHERE lane = ?3 AND ended_at > ?1 ORDER BY ended_at, id LIMIT 110`
	sqlDeadKey   = `SELECT unique_key FROM main.errand_dead WHERE id = ?1`
	sqlCountDead = `SELECT COALESCE(SUM(n), 0) FROM main.errand_number WHERE id >= 32 AND id % 32 = 6`
)

const (
	// deadEvictLimit is how many dead letters an exchange deletes at most, and
	// deadEvictSearch how many it looks at for that.
	deadEvictLimit  = 100
	deadEvictSearch = 1000
)

// deadPage is the LIMIT of sqlOldestDead and sqlOldestDeadOf.
const deadPage = deadEvictLimit + 10

// droppedNumber is the number of a lane that says how many of its dead letters were
// evicted.
const droppedNumber = 22

// death is a job that has died in the exchange under way.
type death struct{ lane, id int64 }

// undertaker evicts dead letters for one exchange.
type undertaker struct {
	*tx
	at             time.Time
	died           []death
	evicted, looks int
}

// evictDead evicts dead letters if more are dead than may be of what has died in the
// exchange, see [storage.WhenDeadFull].
func (t *tx) evictDead(now time.Time) error {
	u := undertaker{tx: t, at: now, died: t.died}
	t.died = nil
	if len(u.died) == 0 {
		return nil
	}
	all, err := t.settings()
	if err != nil || !slices.ContainsFunc(settingsOf(all), func(s storage.Settings) bool { return s[storage.SettingMaxDead] > 0 }) {
		return err
	}
	scopes, lanes, err := u.scopes()
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		if s := all[scope]; s[storage.SettingMaxDead] > 0 {
			if err := u.scope(scope, lanes[scope], s[storage.SettingMaxDead], storage.WhenDeadFull(s[storage.SettingWhenDeadFull])); err != nil {
				return err
			}
		}
	}
	return nil
}

func settingsOf(all laneSettings) (out []storage.Settings) {
	for _, s := range all {
		out = append(out, s)
	}
	return out
}

// scopes returns of what jobs have died: kinds in queues, queues, and the database; and
// the lanes of each but the last.
func (u *undertaker) scopes() (all []storage.Lane, lanes map[storage.Lane][]int64, err error) {
	lanes = map[storage.Lane][]int64{{}: nil}
	for _, d := range u.died {
		name, err := u.laneName(d.lane)
		if err != nil {
			return nil, nil, err
		}
		lanes[name] = []int64{d.lane}
		if queue := (storage.Lane{Queue: name.Queue}); lanes[queue] == nil {
			if lanes[queue], err = u.lanesOf(name.Queue); err != nil {
				return nil, nil, err
			}
		}
	}
	for scope := range lanes {
		all = append(all, scope)
	}
	rank := func(l storage.Lane) int { return min(len(l.Queue), 1) + min(len(l.Kind), 1) }
	slices.SortFunc(all, func(a, b storage.Lane) int { return cmp.Or(rank(b)-rank(a), a.Compare(b)) })
	return all, lanes, nil
}

// scope evicts dead letters of a scope until there are no more than most, and has the log
// warn of how many there are.
func (u *undertaker) scope(scope storage.Lane, lanes []int64, most int64, full storage.WhenDeadFull) error {
	n, err := u.count(scope, lanes)
	if err != nil {
		return err
	}
	over := n - most
	after := victim{due: -math.MaxInt64}
	for full == storage.EvictDead && over > 0 && u.evicted < deadEvictLimit && u.looks < deadEvictSearch {
		page, err := u.page(scope, lanes, after)
		if err != nil {
			return err
		}
		for _, d := range page {
			if over <= 0 || u.evicted == deadEvictLimit || u.looks == deadEvictSearch {
				break
			}
			u.looks++
			if stays, err := u.stays(d); err != nil {
				return err
			} else if stays {
				continue
			}
			if err := u.evict(d.id); err != nil {
				return err
			}
			over--
		}
		if len(page) < deadPage {
			break
		}
		after = page[len(page)-1].victim
	}
	n = most + over
	u.after = append(u.after, func() { u.store.warnOfDead(scope, n, most, full) })
	return nil
}

// count returns how many are dead of a scope.
func (u *undertaker) count(scope storage.Lane, lanes []int64) (n int64, err error) {
	if scope == (storage.Lane{}) {
		err = u.row(sqlCountDead, nil, &n)
		for k, more := range u.counts {
			if k.state == dead {
				n += more
			}
		}
		return n, err
	}
	for _, lane := range lanes {
		var of int64
		err := u.row(sqlNumber, []any{lane*laneNumbers + int64(dead)}, &of)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		n += of + u.counts[laneState{lane, dead}]
	}
	return n, nil
}

// deadRow is a dead letter that may be evicted.
type deadRow struct {
	victim
	options int64
}

// page returns the dead letters of a scope that died first after one, at most deadPage.
func (u *undertaker) page(scope storage.Lane, lanes []int64, after victim) (all []deadRow, err error) {
	var d deadRow
	dest := []any{&d.due, &d.id, &d.options}
	if scope == (storage.Lane{}) {
		err = u.each(sqlOldestDead, []any{after.due, after.id}, dest, func() { all = append(all, d) })
		return all, err
	}
	for _, lane := range lanes {
		if err := u.each(sqlOldestDeadOf, []any{after.due, after.id, lane}, dest, func() { all = append(all, d) }); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b deadRow) int { return a.compare(b.victim, false) })
	return all[:min(len(all), deadPage)], nil
}

// stays reports whether a dead letter cannot be evicted.
func (u *undertaker) stays(d deadRow) (bool, error) {
	if slices.ContainsFunc(u.died, func(e death) bool { return e.id == d.id }) {
		return true, nil
	}
	m, err := u.membership(&facts{ID: d.id, Options: d.options})
	return m.Role == rules.Blocks, err
}

func (u *undertaker) evict(id int64) error {
	var r jobRow
	var inEffect int64
	err := u.row(sqlEndedDead, []any{id}, &r.ID, &r.Lane, &r.State, &r.Attempt, &r.Beside, &r.Policy, &r.Options, &r.Salt, &r.CreatedAt, &inEffect)
	if err != nil {
		return err
	}
	u.tidy = true
	if err := u.row(sqlDeadKey, []any{id}, &r.UniqueKey); err != nil {
		return err
	}
	if err := u.forgoKey(&r.facts); err != nil {
		return err
	}
	if _, err := u.leave(&r.facts, &departure{inEffect: inEffect}); err != nil {
		return err
	}
	name, err := u.laneName(r.Lane)
	u.evicted++
	u.counts[laneState{r.Lane, droppedNumber}]++
	u.tx.evicted = append(u.tx.evicted, evicted{u.at, storage.Evicted{ID: r.id(), Lane: name, Dead: true}})
	return err
}

// warnOfDead warns if the dead letters of a scope have come to a mark of their cap.
func (s *Store) warnOfDead(scope storage.Lane, n, most int64, full storage.WhenDeadFull) {
	mark := s.listeners.dead.note(scope.Queue+" "+scope.Kind, n*100/most, nearMarks)
	if mark == 0 {
		return
	}
	var attrs []any
	if scope.Queue != "" {
		attrs = append(attrs, "queue", scope.Queue)
	}
	if scope.Kind != "" {
		attrs = append(attrs, "kind", scope.Kind)
	}
	attrs = append(attrs, "percent", mark, "dead", n, "max_dead", most, "when_dead_full", full.String())
	s.opts.Logger.Warn("errand: there are almost as many dead letters as there may be", attrs...)
}
