package rules

import (
	"time"

	"github.com/errandq/errand/storage"
)

// PlainJob reports whether no row says what becomes of a new job: it has no unique key and no group.
// A store may insert it without a Tx.
func PlainJob(j *storage.NewJob) bool { return j.Unique == "" && j.Group == "" }

// PlainFinish reports whether no row says what becomes of a job that is leased, and has a unique key and
// a group as given. A store may then end it without a Tx, by its lease: as [storage.Finish.Effect] says,
// with no crashes, and kept for as long as the jobs of all lanes are.
func PlainFinish(f *storage.Finish, key, group string, keep *storage.Retention) bool {
	e := f.Effect(false) // which is the same for one that was asked to stop
	return (e.State == storage.Done || e.State == storage.Cancelled) && f.Failure == nil && len(f.Then) == 0 &&
		key == "" && group == "" && len(keep.Lanes) == 0
}

// Finish decides about attempts that end, one after the other, and returns what becomes of each. keep
// says for how long a job of a lane is kept that has ended as done or cancelled. enter is Enter for the
// jobs that follow, of which Finish returns the answers for each item.
func (t *Tx) Finish(all []storage.Finish, keep func(lane int64) time.Duration, enter func(index int, j *storage.NewJob) (storage.Enqueued, error)) (results []storage.ItemResult, then map[int][]storage.Enqueued, err error) {
	for i := range all {
		f := &all[i]
		result, err := t.finish(f, keep)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, result)
		follow := f.Follows(result)
		for k := range follow {
			t.first = 0 // it enters as by a call of its own: the jobs before it are there
			answer, err := Following(enter(k, &follow[k]))
			if err != nil {
				return nil, nil, err
			}
			if then == nil {
				then = map[int][]storage.Enqueued{}
			}
			then[i] = append(then[i], answer)
		}
	}
	return results, then, t.SettleAll()
}

// finish decides about one attempt. Its group is to be settled.
func (t *Tx) finish(f *storage.Finish, keep func(lane int64) time.Duration) (storage.ItemResult, error) {
	r, err := t.live(f.Key)
	if err != nil {
		return 0, err
	}
	if r == nil || r.Is.State != storage.Running || r.Is.Token != f.Token {
		return storage.Lost, nil
	}
	is := &r.Is
	e := f.Effect(is.Cancelling)
	if e.State == "" {
		return storage.Refused, nil
	}
	r.Finish, r.Fails = f, f.Failure != nil && f.Outcome != storage.OutcomeReturned
	is.Counters, is.Cancelling = e.Counters(is.Counters), false
	if e.State != storage.Ready {
		return storage.Applied, t.leave(r, e.State, keep(is.Lane))
	}
	is.State, is.Due, is.Delay = BackAt(t.now, f.DueAt, e, is.Due)
	is.History, is.Doubt = is.History || r.Fails, is.Doubt && e.KeepCrashes
	if is.Group == "" {
		return storage.Applied, nil
	}
	g, err := t.group(is.Group)
	if err != nil {
		return 0, err
	}
	was := is.Role
	if g.Rule.PutBack(is.State, f.Stays) == NoRole {
		is.Role = NoRole
	}
	t.later(g, was, is.member())
	return storage.Applied, nil
}

// BackAt returns the state of a job that is put back, when it is due, and how much of that is counted
// from now. was is when it was due.
func BackAt(now, at time.Time, e storage.Effect, was int64) (state storage.State, due, delay int64) {
	switch due = Due(at); {
	case at.After(now):
		return storage.Scheduled, due, due - now.UnixMicro()
	case !at.IsZero():
		return storage.Ready, due, 0
	case e.KeepPlace:
		return storage.Ready, was, 0
	}
	return storage.Ready, now.UnixMicro(), 0
}

// leave has a job end. Its group is to be settled.
func (t *Tx) leave(r *Row, to storage.State, keep time.Duration) (err error) {
	is := &r.Is
	kept := to == storage.Dead || keep > 0
	is.Role, err = t.End(is.ID, is.Unique, is.Group, is.Role, to, kept)
	switch {
	case !kept:
		is.State, r.Unkept, r.Fails = "", to, false
	case to == storage.Dead:
		is.State = to
	default:
		is.State, r.PurgeAt = to, t.now.Add(keep).UnixMicro()
	}
	return err
}

// Cancel decides about a job that is to be cancelled, and returns its state then. That is "" if it is
// not live. keep is that of Finish.
func (t *Tx) Cancel(id storage.ID, keep func(lane int64) time.Duration) (storage.State, error) {
	r, err := t.live(id.Key())
	if err != nil || r == nil || r.Is.id() != id {
		return "", err
	}
	if r.Is.State == storage.Running {
		r.Is.Cancelling = true
		return storage.Running, nil
	}
	if err := t.leave(r, storage.Cancelled, keep(r.Is.Lane)); err != nil {
		return "", err
	}
	return storage.Cancelled, t.SettleAll()
}
