package rules

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// Each case is what ends an attempt, and what becomes of the job.
func TestTx_Finish(t *testing.T) {
	now := at(1000 * second)
	runs := Job{ID: 3, Lane: 7, Due: 900 * second, State: storage.Running, Token: 9, Counters: storage.Counters{Attempt: 5, Retry: 3, Crashes: 2, Snoozes: 1}}
	row := func(change func(r *Row)) Row {
		r := Row{Was: runs.standing(), Is: runs}
		change(&r)
		return r
	}
	// back is how the job waits that is put back.
	back := func(state storage.State, due int64, n storage.Counters, change func(r *Row)) Row {
		return row(func(r *Row) {
			r.Is.State, r.Is.Due, r.Is.Counters = state, due, n
			change(r)
		})
	}
	same := func(*Row) {}
	later := func(delay int64) func(r *Row) { return func(r *Row) { r.Is.Delay = delay } }
	retried := storage.Counters{Attempt: 5, Retry: 4, Snoozes: 1}
	settled := storage.Counters{Attempt: 5, Retry: 3, Snoozes: 1}
	failed := &storage.NewFailure{Error: "bad"}
	for what, c := range map[string]struct {
		is   func(j *Job) // before
		f    storage.Finish
		keep time.Duration
		want Row
	}{
		"done": {nil, storage.Finish{Outcome: storage.OutcomeDone}, 0, row(func(r *Row) { r.Is.State, r.Unkept, r.Is.Counters = "", storage.Done, settled })},
		"done after failures": {func(j *Job) { j.History = true }, storage.Finish{Outcome: storage.OutcomeDone}, 0, row(func(r *Row) {
			r.Is.State, r.Unkept, r.Is.Counters, r.Is.History = "", storage.Done, settled, true
		})},
		"done and kept": {nil, storage.Finish{Outcome: storage.OutcomeDone}, time.Minute, row(func(r *Row) {
			r.Is.State, r.Is.Counters, r.PurgeAt = storage.Done, settled, 1060*second
		})},
		"cancelled and kept": {nil, storage.Finish{Outcome: storage.OutcomeCancelled}, time.Minute, row(func(r *Row) {
			r.Is.State, r.Is.Counters, r.PurgeAt = storage.Cancelled, settled, 1060*second
		})},
		"cancelled with a failure": {nil, storage.Finish{Outcome: storage.OutcomeCancelled, Failure: failed}, time.Minute, row(func(r *Row) {
			r.Is.State, r.Is.Counters, r.PurgeAt, r.Fails = storage.Cancelled, settled, 1060*second, true
		})},
		"cancelled with a failure, and gone": {nil, storage.Finish{Outcome: storage.OutcomeCancelled, Failure: failed}, 0, row(func(r *Row) {
			r.Is.State, r.Unkept, r.Is.Counters = "", storage.Cancelled, settled
		})},
		"dead": {nil, storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Failure: failed}, 0, row(func(r *Row) {
			r.Is.State, r.Is.Counters, r.Fails = storage.Dead, settled, true
		})},
		"dead, of those that are kept": {nil, storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}, time.Minute, row(func(r *Row) {
			r.Is.State, r.Is.Counters = storage.Dead, settled
		})},
		"retried at once": {nil, storage.Finish{Outcome: storage.OutcomeRetry, Failure: failed}, 0, back(storage.Ready, 1000*second, retried, func(r *Row) {
			r.Fails, r.Is.History = true, true
		})},
		"retried later":              {nil, storage.Finish{Outcome: storage.OutcomeRetry, DueAt: at(1001 * second)}, 0, back(storage.Scheduled, 1001*second, retried, later(second))},
		"retried a bit later":        {nil, storage.Finish{Outcome: storage.OutcomeRetry, DueAt: now.Add(1)}, 0, back(storage.Scheduled, 1000*second+1, retried, later(1))},
		"retried, due now":           {nil, storage.Finish{Outcome: storage.OutcomeRetry, DueAt: now}, 0, back(storage.Ready, 1000*second, retried, same)},
		"retried, due before":        {nil, storage.Finish{Outcome: storage.OutcomeRetry, DueAt: at(999 * second)}, 0, back(storage.Ready, 999*second, retried, same)},
		"retried after a lost lease": {func(j *Job) { j.Doubt, j.History = true, true }, storage.Finish{Outcome: storage.OutcomeRetry}, 0, back(storage.Ready, 1000*second, retried, func(r *Row) { r.Is.History = true })},
		"interrupted after a lost lease": {
			func(j *Job) { j.Doubt = true }, storage.Finish{Outcome: storage.OutcomeInterrupted}, 0,
			back(storage.Ready, 1000*second, runs.Counters, func(r *Row) { r.Is.Doubt = true }),
		},
		"returned":           {nil, storage.Finish{Outcome: storage.OutcomeReturned, Failure: failed}, 0, back(storage.Ready, 900*second, storage.Counters{Attempt: 4, Retry: 3, Crashes: 2, Snoozes: 1}, same)},
		"returned for later": {nil, storage.Finish{Outcome: storage.OutcomeReturned, DueAt: at(1001 * second)}, 0, back(storage.Scheduled, 1001*second, storage.Counters{Attempt: 4, Retry: 3, Crashes: 2, Snoozes: 1}, later(second))},
		"retried when asked to stop": {func(j *Job) { j.Cancelling = true }, storage.Finish{Outcome: storage.OutcomeRetry}, time.Minute, row(func(r *Row) {
			r.Is.State, r.Is.Counters, r.PurgeAt = storage.Cancelled, settled, 1060*second
		})},
	} {
		j := runs
		if c.is != nil {
			c.is(&j)
		}
		c.f.Lease = storage.Lease{Key: 3, Token: 9}
		var tx Tx
		tx.Begin(now, 0)
		tx.Reset(Need{Jobs: []int64{3}})
		tx.ReadLive(j)
		tx.ReadLives()
		results, _, err := tx.Finish([]storage.Finish{c.f, c.f}, func(lane int64) time.Duration {
			if lane != 7 {
				t.Errorf("%s: a job of lane %d", what, lane)
			}
			return c.keep
		}, nil)
		if want := []storage.ItemResult{storage.Applied, storage.Lost}; err != nil || !reflect.DeepEqual(results, want) {
			t.Errorf("%s returned %v, %v; want %v", what, results, err, want)
		}
		changes := tx.Changes()
		if len(changes.Jobs) != 1 || changes.At != 1000*second {
			t.Errorf("%s changes %d jobs at %d", what, len(changes.Jobs), changes.At)
			continue
		}
		is := *changes.Jobs[0]
		if is.Finish == nil || is.Finish.Outcome != c.f.Outcome || is.Was != j.standing() {
			t.Errorf("%s was %+v, and has ended by %+v", what, is.Was, is.Finish)
		}
		c.want.Was, is.Finish, is.live, is.ended = is.Was, nil, false, false
		if !reflect.DeepEqual(is, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", what, is, c.want)
		}
	}
}

func TestPlain(t *testing.T) {
	done, cancelled := storage.Finish{Outcome: storage.OutcomeDone, Error: "e"}, storage.Finish{Outcome: storage.OutcomeCancelled}
	then, failed := done, cancelled
	then.Then, failed.Failure = []storage.NewJob{job("")}, &storage.NewFailure{}
	for what, c := range map[string]struct {
		f          storage.Finish
		key, group string
		lanes      int
		want       bool
	}{
		"done":                  {f: done, want: true},
		"cancelled":             {f: cancelled, want: true},
		"with a key":            {f: done, key: "u"},
		"with a group":          {f: done, group: "q g"},
		"of lanes that differ":  {f: done, lanes: 1},
		"that another follows":  {f: then},
		"that has failed":       {f: failed},
		"put back":              {f: storage.Finish{Outcome: storage.OutcomeRetry}},
		"dead":                  {f: storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}},
		"with an empty outcome": {},
	} {
		keep := storage.Retention{Lanes: map[storage.Lane]time.Duration{}}
		for range c.lanes {
			keep.Lanes[storage.Lane{Queue: "q"}] = time.Hour
		}
		if PlainFinish(&c.f, c.key, c.group, &keep) != c.want {
			t.Errorf("%s is plain: %t", what, !c.want)
		}
	}
	for what, c := range map[string]struct {
		j    storage.NewJob
		want bool
	}{
		"a job":        {job(""), true},
		"with a key":   {keyed("u", "", storage.Keep), false},
		"with a group": {grouped("g", ""), false},
	} {
		if PlainJob(&c.j) != c.want {
			t.Errorf("%s is plain: %t", what, !c.want)
		}
	}
}

// What is not an attempt that ends changes nothing.
func TestTx_FinishNothing(t *testing.T) {
	for what, c := range map[string]struct {
		j    Job
		f    storage.Finish
		want storage.ItemResult
	}{
		"not there":             {Job{ID: 4, State: storage.Running}, storage.Finish{Outcome: storage.OutcomeDone}, storage.Lost},
		"under another lease":   {Job{ID: 3, State: storage.Running, Token: 1}, storage.Finish{Outcome: storage.OutcomeDone}, storage.Lost},
		"ready":                 {Job{ID: 3, State: storage.Ready}, storage.Finish{Outcome: storage.OutcomeDone}, storage.Lost},
		"without a reason":      {Job{ID: 3, State: storage.Running}, storage.Finish{Outcome: storage.OutcomeDead}, storage.Refused},
		"with an empty outcome": {Job{ID: 3, State: storage.Running}, storage.Finish{}, storage.Refused},
	} {
		var tx Tx
		tx.Reset(Need{Jobs: []int64{3, 4}})
		tx.ReadLive(c.j)
		tx.ReadLives()
		c.f.Key = 3
		c.f.Then = []storage.NewJob{job("")} // which does not follow
		results, then, err := tx.Finish([]storage.Finish{c.f}, nil, nil)
		if changes := tx.Changes(); err != nil || len(results) != 1 || results[0] != c.want || then != nil || len(changes.Jobs) > 0 {
			t.Errorf("%s: %v, %v, %v, and changes %+v", what, results, then, err, changes.Jobs)
		}
	}
	var tx Tx
	tx.Reset(Need{Jobs: []int64{3}})
	tx.ReadLives()
	if _, _, err := tx.Finish([]storage.Finish{{Lease: storage.Lease{Key: 4}, Outcome: storage.OutcomeDone}}, nil, nil); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("the end of a job that was not named returned %v", err)
	}
	if _, err := tx.Cancel(storage.NewID(at(0), 0, 4), nil); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Cancel of a job that was not named returned %v", err)
	}
	tx.Reset(Need{Jobs: []int64{3}})
	if _, err := tx.Cancel(storage.NewID(at(0), 0, 3), nil); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Cancel of a job that was read before Reset returned %v", err)
	}
}

// The jobs that follow are answered for each item. One is refused as by a call of its own.
func TestTx_FinishThen(t *testing.T) {
	m := newMemory(t)
	m.enqueue(keyed("u", "", storage.Keep), job(""))
	m.run(1, 2)
	refused := keyed("u", "c", storage.Fail)
	all := []ending{
		{job: 1, to: storage.Done, then: []storage.NewJob{keyed("u", "a", storage.Fail), refused}},
		{job: 2, to: storage.Dead, then: []storage.NewJob{refused, job("d")}},
	}
	m.needs(all)
	m.load()
	var finish []storage.Finish
	for i := range all {
		finish = append(finish, all[i].finish())
	}
	var asked []int
	_, then, err := m.tx.Finish(finish, func(int64) time.Duration { return 0 }, func(i int, j *storage.NewJob) (storage.Enqueued, error) {
		asked = append(asked, i)
		return m.tx.Enter(i, j, 7, 0)
	})
	m.must(err)
	first := storage.Enqueued{ID: storage.NewID(m.now, 0, 3)}
	again := first
	again.Duplicate = true
	last := storage.Enqueued{ID: storage.NewID(m.now, 0, 6)}
	if want := map[int][]storage.Enqueued{0: {first, again}, 1: {again, last}}; !reflect.DeepEqual(then, want) || !reflect.DeepEqual(asked, []int{0, 1, 0, 1}) {
		t.Errorf("the answers to the jobs %v are %+v, want %+v", asked, then, want)
	}
	m.write()
	if got, want := m.String(), "3 ready a, 6 ready d, 2 dead, u of 3"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
}

func TestTx_Cancel(t *testing.T) {
	next := grouped("g", "b")
	next.Priority = 2
	for what, c := range map[string]struct {
		runs  bool
		salt  uint32
		keep  time.Duration
		want  storage.State
		there string
	}{
		"one that waits":           {want: storage.Cancelled, there: "2 ready placed b priority 2"},
		"one that waits, and kept": {want: storage.Cancelled, keep: time.Minute, there: "2 ready placed b priority 2"},
		"one that runs":            {runs: true, want: storage.Running, there: "1 running placed a, 2 blocked was due waits b priority 2, u of 1"},
		"another one":              {salt: 5, want: "", there: "1 ready placed a, 2 blocked was due waits b priority 2, u of 1"},
	} {
		m := newMemory(t)
		first := grouped("g", "a")
		first.Unique = "u"
		m.enqueue(first, next)
		if c.runs {
			m.run(1)
		}
		m.needs([]ending{{job: 1}})
		m.load()
		if is := m.tx.Live(1); is.Unique != "u" || is.Group != "q g" {
			t.Errorf("%s: Live returned %+v", what, is)
		}
		state, err := m.tx.Cancel(storage.NewID(m.now, c.salt, 1), func(int64) time.Duration { return c.keep })
		if err != nil || state != c.want {
			t.Errorf("%s: Cancel returned %q, %v; want %q", what, state, err, c.want)
		}
		if is := m.tx.Live(1); (is.ID == 0) != (c.want == storage.Cancelled) {
			t.Errorf("%s: Live returned %+v then", what, is)
		}
		m.write()
		if got := m.String(); got != c.there {
			t.Errorf("%s: there is %s, want %s", what, got, c.there)
		}
		if _, kept := m.kept[1]; kept != (c.keep > 0) || m.jobs[1].Cancelling != c.runs {
			t.Errorf("%s: kept is %t, and it was asked to stop: %t", what, kept, m.jobs[1].Cancelling)
		}
	}
}

func TestNumbers_Follow(t *testing.T) {
	var n Numbers
	in := func(lane int64, s storage.State) Standing { return Standing{Lane: lane, State: s, Bytes: 10} }
	longer := in(2, storage.Blocked)
	longer.Bytes = 15
	for _, c := range []struct {
		was, is Standing
		unkept  storage.State
	}{
		{Standing{}, in(2, storage.Ready), ""},
		{in(2, storage.Ready), in(2, storage.Running), ""},
		{in(2, storage.Ready), in(2, storage.Running), ""},
		{in(2, storage.Running), Standing{Lane: 2}, storage.Done},
		{in(2, storage.Running), Standing{Lane: 2}, storage.Cancelled},
		{in(2, storage.Running), in(2, storage.Dead), ""},
		{in(2, storage.Dead), Standing{}, ""},
		{in(2, storage.Ready), in(2, storage.Ready), ""},
		{in(2, storage.Blocked), longer, ""},
		{Standing{}, in(1, storage.Scheduled), ""},
		{in(2, storage.Ready), in(1, storage.Ready), ""},
		{in(1, storage.Dead), in(2, storage.Scheduled), ""},
	} {
		n.Follow(c.was, c.is, c.unkept)
	}
	want := Numbers{
		{1, "", storage.Scheduled, "", 1, 10},
		{1, storage.Dead, Elsewhere, "", 1, 0},
		{1, Elsewhere, storage.Ready, "", 1, 10},
		{2, "", storage.Ready, "", 1, 10},
		{2, storage.Blocked, storage.Blocked, "", 1, 5},
		{2, storage.Dead, "", "", 1, 0},
		{2, Elsewhere, storage.Scheduled, "", 1, 10},
		{2, storage.Ready, Elsewhere, "", 1, -10},
		{2, storage.Ready, storage.Running, "", 2, 0},
		{2, storage.Running, "", storage.Cancelled, 1, -10},
		{2, storage.Running, "", storage.Done, 1, -10},
		{2, storage.Running, storage.Dead, "", 1, -10},
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("the numbers are %v, want %v", n, want)
	}
}

// A job that is replaced has the bytes of what it is to do.
func TestNumbers_Bytes(t *testing.T) {
	m := newMemory(t)
	for _, args := range []string{"long", "longer"} {
		j := keyed("u", args, storage.Replace)
		j.Headers = []byte("{}")
		m.enqueue(j)
		if n, want := m.numbers()[number{7, "bytes"}], int64(len(args)+2); n != want {
			t.Errorf("there are %d bytes, want %d", n, want)
		}
	}
}

// A job that is read both as one that may end and as one that has a key is one row, whichever comes
// first.
func TestTx_readsTwice(t *testing.T) {
	ofKey := Job{ID: 3, State: storage.Running, Priority: 2, Args: []byte("a")}
	mayEnd := Job{ID: 3, State: storage.Running, Token: 9, Unique: "u", Cancelling: true}
	want := mayEnd
	want.Priority, want.Args = ofKey.Priority, ofKey.Args
	for _, first := range []bool{true, false} {
		var tx Tx
		tx.Reset(Need{Jobs: []int64{3}})
		if first {
			tx.ReadJob(ofKey)
		}
		tx.ReadLive(mayEnd)
		if !first {
			tx.ReadJob(ofKey)
		}
		r := tx.rows.get(3)
		if !reflect.DeepEqual(r.Is, want) || r.Moved() || !r.work {
			t.Errorf("the job is %+v, want %+v", r, want)
		}
		r.Is.Priority, r.Is.Args = 4, []byte("b") // as it was replaced
		if tx.ReadJob(ofKey); r.Is.Priority != 4 || string(r.Is.Args) != "b" {
			t.Errorf("read again, it is %+v", r)
		}
	}
}
