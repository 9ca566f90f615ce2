package rules

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// second is a second of the times here.
const second = 1_000_000

func at(us int64) time.Time { return time.UnixMicro(us) }

func TestKey_conflict(t *testing.T) {
	waits := func(s storage.State, attempt int) *Waiter {
		return &Waiter{State: s, Counters: storage.Counters{Attempt: attempt}}
	}
	ready, begun, running := waits(storage.Ready, 0), waits(storage.Scheduled, 1), waits(storage.Running, 1)
	for _, c := range []struct {
		what  string
		mode  storage.ConflictMode
		key   Key
		group string
		want  Admission
	}{
		{"keep", storage.Keep, Key{Live: true, Waiter: ready}, "", Duplicate},
		{"fail", storage.Fail, Key{Live: true, Waiter: ready}, "", Refuse},
		{"a job waits", storage.Replace, Key{Live: true, Waiter: ready}, "", Change},
		{"one that is put off waits", storage.Replace, Key{Live: true, Waiter: begun}, "", Change},
		{"a job that has the key for ever waits", storage.Debounce, Key{Live: true, Holder: Keeper{Until: Forever}, Waiter: ready}, "", Change},
		{"a member waits", storage.Replace, Key{Live: true, Waiter: ready}, "g", Change},
		{"for After none has begun", storage.After, Key{Live: true, Waiter: ready}, "", Change},
		{"for After the one that waits has begun", storage.After, Key{Live: true, Waiter: begun}, "", Follow},
		{"the holder runs", storage.Replace, Key{Live: true, Waiter: running}, "", Follow},
		{"the holder runs, and has the key for a time", storage.Replace, Key{Live: true, Holder: Keeper{Until: second}, Waiter: running}, "", Follow},
		{"the holder runs, and has the key for ever", storage.Replace, Key{Live: true, Holder: Keeper{Until: Forever}, Waiter: running}, "", Duplicate},
		{"the holder of a member runs", storage.Replace, Key{Live: true, Waiter: running}, "g", Duplicate},
		{"the holder has ended, and has the key for a time", storage.Replace, Key{Holder: Keeper{Until: second}}, "", Succeed},
		{"the holder of a member has ended, and has the key for a time", storage.Replace, Key{Holder: Keeper{Until: second}}, "g", Succeed},
		{"the holder has ended, and has the key for ever", storage.Replace, Key{Holder: Keeper{Until: Forever}}, "", Duplicate},
		{"the holder is missing, by damage", storage.Replace, Key{}, "", Duplicate},
	} {
		j := storage.NewJob{Unique: "u", Group: c.group, Conflict: &storage.Conflict{Mode: c.mode}}
		if got := c.key.conflict(&j); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if got := (&Key{Live: true, Waiter: ready}).conflict(&storage.NewJob{Unique: "u"}); got != Duplicate {
		t.Errorf("without a Conflict: %d, want %d", got, Duplicate)
	}
}

func TestKey_unmerged(t *testing.T) {
	waits := &Waiter{State: storage.Ready, Args: []byte("a")}
	runs := &Waiter{State: storage.Running, Args: []byte("a")}
	for _, c := range []struct {
		what string
		key  *Key
		old  []byte
		want *storage.Unmerged
	}{
		{"nobody waits", &Key{}, nil, nil},
		{"nobody waits any more", &Key{}, []byte("a"), &storage.Unmerged{}},
		{"made of what waits", &Key{Live: true, Waiter: waits}, []byte("a"), nil},
		{"made of what has changed", &Key{Live: true, Waiter: waits}, []byte("b"), &storage.Unmerged{Found: []byte("a")}},
		{"made of nothing", &Key{Live: true, Waiter: waits}, nil, &storage.Unmerged{Found: []byte("a")}},
		{"made of nothing, and the holder runs", &Key{Live: true, Waiter: runs}, nil, nil},
		{"made of what runs now", &Key{Live: true, Waiter: runs}, []byte("a"), &storage.Unmerged{}},
		{"made of args that are empty", &Key{Live: true, Waiter: &Waiter{State: storage.Ready, Args: []byte{}}}, []byte{}, nil},
		{"to be made of args that are empty", &Key{Live: true, Waiter: &Waiter{State: storage.Ready}}, nil, &storage.Unmerged{Found: []byte{}}},
	} {
		got := c.key.unmerged(&storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{Old: c.old}})
		if (got == nil) != (c.want == nil) || got != nil && ((got.Found == nil) != (c.want.Found == nil) || string(got.Found) != string(c.want.Found)) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestWaiting_replaced(t *testing.T) {
	const now = 100 * second
	counters := storage.Counters{Attempt: 2, Retry: 2, Crashes: 1, Snoozes: 3}
	w := func(s storage.State, created, due int64) Waiter {
		return Waiter{State: s, Created: created, Due: due, Counters: counters}
	}
	for _, c := range []struct {
		what  string
		was   Waiter
		c     storage.Conflict
		state storage.State
		due   int64
		delay int64
		put   bool
	}{
		{"replace", w(storage.Scheduled, 0, 200*second), storage.Conflict{Mode: storage.Replace}, storage.Scheduled, 200 * second, 0, false},
		{"replace one that is blocked", w(storage.Blocked, 0, 0), storage.Conflict{Mode: storage.Replace}, storage.Blocked, 0, 0, false},
		{"fresh", w(storage.Scheduled, 0, 200*second), storage.Conflict{Mode: storage.Replace, Fresh: true}, storage.Ready, now, 0, true},
		{"fresh, ready", w(storage.Ready, 0, 50*second), storage.Conflict{Mode: storage.Replace, Fresh: true}, storage.Ready, 50 * second, 0, false},
		{"fresh, overdue", w(storage.Scheduled, 0, 50*second), storage.Conflict{Mode: storage.Replace, Fresh: true}, storage.Scheduled, 50 * second, 0, false},
		{"fresh, blocked", w(storage.Blocked, 0, 200*second), storage.Conflict{Mode: storage.Replace, Fresh: true}, storage.Blocked, 200 * second, 0, false},
		{"debounce", w(storage.Scheduled, 0, 101*second), storage.Conflict{Mode: storage.Debounce, Quiet: 5 * time.Second}, storage.Scheduled, 105 * second, 5 * second, true},
		{"debounce one that is ready", w(storage.Ready, 0, 50*second), storage.Conflict{Mode: storage.Debounce, Quiet: 5 * time.Second}, storage.Scheduled, 105 * second, 5 * second, true},
		{"debounce, never to an earlier time", w(storage.Scheduled, 0, 120*second), storage.Conflict{Mode: storage.Debounce, Quiet: 5 * time.Second}, storage.Scheduled, 120 * second, 0, false},
		{"debounce, at most to MaxWait", w(storage.Scheduled, 93*second, 101*second), storage.Conflict{Mode: storage.Debounce, Quiet: 5 * time.Second, MaxWait: 10 * time.Second}, storage.Scheduled, 103 * second, 3 * second, true},
		{"debounce, MaxWait is over", w(storage.Scheduled, 50*second, 99*second), storage.Conflict{Mode: storage.Debounce, Quiet: 5 * time.Second, MaxWait: 49500 * time.Millisecond}, storage.Ready, 99_500_000, 0, true},
	} {
		is, put := c.was.replaced(at(now), &c.c)
		want := counters
		if c.c.Fresh {
			want = storage.Counters{Attempt: 2}
		}
		if is.State != c.state || is.Due != c.due || is.Delay != c.delay || put != c.put || is.Counters != want {
			t.Errorf("%s: %+v, put %v", c.what, is, put)
		}
	}
	// An attempt has not put it off, so that it stays due later.
	first := Waiter{State: storage.Scheduled, Due: 200 * second}
	if is, put := first.replaced(at(now), &storage.Conflict{Mode: storage.Replace, Fresh: true}); put || is.Due != 200*second {
		t.Errorf("fresh before the first attempt: %+v, put %v", is, put)
	}
}

func TestKey_renew(t *testing.T) {
	for _, c := range []struct {
		what  string
		key   Key
		now   int64
		until int64
		over  bool
	}{
		{"nobody has it", Key{}, 9, 0, true},
		{"it holds", Key{Holder: Keeper{1, 1, 10, 0, 0}}, 9, 10, false},
		{"it is over", Key{Holder: Keeper{1, 1, 10, 0, 0}}, 10, 10, true},
		{"the holder lives", Key{Holder: Keeper{1, 1, 10, 0, 0}, Live: true}, 10, 10, false},
		{"for ever", Key{Holder: Keeper{1, 1, Forever, 0, 0}}, 10, Forever, false},
		{"with its life", Key{Holder: Keeper{1, 1, 0, 0, 0}}, 10, 0, false},
		{"the clock was set back", Key{Holder: Keeper{1, 100, 110, 0, 0}}, 5, 15, false},
		{"the clock was set back, and the holder lives", Key{Holder: Keeper{1, 100, 110, 0, 0}, Live: true}, 5, 110, false},
		{"the clock was set back before a time in the past", Key{Holder: Keeper{1, 100, 100, 0, 0}}, 5, 100, false},
		{"the clock was set back, for ever", Key{Holder: Keeper{1, 100, Forever, 0, 0}}, 5, Forever, false},
		{"it has begun anew", Key{Holder: Keeper{1, 100, 205, 0, 5}}, 8, 205, false},
		{"it has begun anew, and the clock was set back again", Key{Holder: Keeper{1, 100, 205, 0, 5}}, 4, 204, false},
		{"enqueued now", Key{Holder: Keeper{1, 5, 15, 0, 0}}, 5, 15, false},
	} {
		k := c.key
		if k.renew(c.now); k.Holder.Until != c.until || k.free(c.now) != c.over {
			t.Errorf("%s: until %d, over %v, want %d, %v", c.what, k.Holder.Until, k.free(c.now), c.until, c.over)
		}
	}
}

func TestUntil(t *testing.T) {
	for _, c := range []struct {
		what         string
		job          storage.NewJob
		created, due int64
		want         int64
	}{
		{"live", storage.NewJob{}, 5, 6, 0},
		{"for ever", storage.NewJob{UniqueScope: storage.UniqueForever, UniqueFor: time.Second}, 5, 6, Forever},
		{"from the enqueue", storage.NewJob{UniqueFor: time.Second}, 5, 4, 5 + second},
		{"from the first due time", storage.NewJob{UniqueFor: time.Second}, 5, 6, 6 + second},
		{"rounded up", storage.NewJob{UniqueFor: time.Nanosecond}, 5, 5, 6},
	} {
		if got := Until(&c.job, c.created, c.due); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if got := Due(time.Unix(0, 1)); got != 1 {
		t.Errorf("a nanosecond is due at %d, want 1", got)
	}
	if got := Due(time.Unix(0, 1000)); got != 1 {
		t.Errorf("a microsecond is due at %d, want 1", got)
	}
}

func TestKey_claim(t *testing.T) {
	const now, later = 100 * second, 200 * second
	is := Keeper{Job: 7, Created: now, Salt: 3}
	until := func(k Keeper, us int64) Keeper { k.Until = us; return k }
	holder, behind := Keeper{Job: 1, Created: 5, Salt: 2}, Keeper{Job: 2, Created: 6, Salt: 4}
	waits := func(due int64) *Waiter { return &Waiter{State: storage.Scheduled, Created: 5, Due: due} }
	runs := &Waiter{State: storage.Running}
	replace := &storage.Conflict{Mode: storage.Replace}
	debounce := &storage.Conflict{Mode: storage.Debounce, Quiet: 300 * time.Second}
	for _, c := range []struct {
		what     string
		key      Key
		job      storage.NewJob
		due      int64
		want     Claim
		becoming Key
	}{
		{"nobody has it", Key{}, storage.NewJob{}, now, Claim{Admission: Succeed}, Key{Holder: is, Live: true}},
		{"nobody has it, and it is for a time", Key{}, storage.NewJob{UniqueFor: time.Second}, later, Claim{Admission: Succeed}, Key{Holder: until(is, later+second), Live: true}},
		{"nobody has it any more", Key{Holder: until(holder, now), Kept: true}, storage.NewJob{}, 0, Claim{Admission: Succeed}, Key{Holder: is, Live: true}},
		{"its own outlives it", Key{Holder: until(is, later), Kept: true}, storage.NewJob{}, now, Claim{Admission: Succeed}, Key{Holder: until(is, later), Live: true}},
		{"a job lives", Key{Holder: holder, Live: true}, storage.NewJob{}, now, Claim{ID: holder.ID()}, Key{Holder: holder, Live: true}},
		{"a job lives, and has it for a time", Key{Holder: until(holder, later), Live: true}, storage.NewJob{}, now, Claim{ID: holder.ID()}, Key{Holder: until(holder, later), Live: true}},
		{"a job has gone", Key{Holder: until(holder, later)}, storage.NewJob{}, now, Claim{ID: holder.ID(), Gone: true}, Key{Holder: until(holder, later)}},
		{"a job is kept", Key{Holder: until(holder, later), Kept: true}, storage.NewJob{}, now, Claim{ID: holder.ID()}, Key{Holder: until(holder, later), Kept: true}},
		{"a job is missing, by damage", Key{Holder: holder}, storage.NewJob{}, now, Claim{ID: holder.ID()}, Key{Holder: holder}},
		{
			"the clock was set back", Key{Holder: Keeper{Job: 1, Created: later, Until: later + second}, Kept: true}, storage.NewJob{}, now,
			Claim{ID: Keeper{Job: 1, Created: later}.ID()}, Key{Holder: Keeper{Job: 1, Created: later, Until: now + second, Since: now}, Kept: true},
		},
		{
			"the call fails", Key{Holder: until(holder, later)}, storage.NewJob{Conflict: &storage.Conflict{Mode: storage.Fail}}, now,
			Claim{Admission: Refuse, ID: holder.ID(), Gone: true}, Key{Holder: until(holder, later)},
		},
		{
			"the holder waits", Key{Holder: holder, Live: true, Waiter: waits(later)}, storage.NewJob{Conflict: debounce}, now,
			Claim{Admission: Change, ID: holder.ID(), Is: Waiter{State: storage.Scheduled, Created: 5, Due: now + 300*second, Delay: 300 * second}, Put: true},
			Key{Holder: holder, Live: true, Waiter: waits(later)},
		},
		{
			"one waits behind the holder", Key{Holder: holder, Behind: behind, Live: true, Waiter: waits(now)}, storage.NewJob{Conflict: replace}, now,
			Claim{Admission: Change, ID: behind.ID(), Is: *waits(now)}, Key{Holder: holder, Behind: behind, Live: true, Waiter: waits(now)},
		},
		{
			"the holder runs", Key{Holder: holder, Live: true, Waiter: runs}, storage.NewJob{UniqueFor: time.Second, Conflict: replace}, now,
			Claim{Admission: Follow}, Key{Holder: holder, Behind: until(is, now+second), Live: true, Waiter: runs},
		},
		{
			"the holder runs, and has it for a time", Key{Holder: until(holder, later), Live: true, Waiter: runs}, storage.NewJob{UniqueFor: time.Second, Conflict: replace}, now,
			Claim{Admission: Follow, Due: later}, Key{Holder: until(holder, later), Behind: until(is, later+second), Live: true, Waiter: runs},
		},
		{
			"the holder runs, and its time is over", Key{Holder: until(holder, now), Live: true, Waiter: runs}, storage.NewJob{Conflict: replace}, now - second,
			Claim{Admission: Follow}, Key{Holder: until(holder, now), Behind: is, Live: true, Waiter: runs},
		},
		{
			"the holder has ended, and has it for a time", Key{Holder: until(holder, later), Kept: true}, storage.NewJob{Conflict: replace}, now,
			Claim{Admission: Succeed, Due: later}, Key{Holder: is, Live: true},
		},
		{
			"the holder has ended, and has it until before the job is due", Key{Holder: until(holder, now+1)}, storage.NewJob{Conflict: replace}, later,
			Claim{Admission: Succeed}, Key{Holder: is, Live: true},
		},
		{
			"the args were made of others", Key{Holder: until(holder, now), Kept: true}, storage.NewJob{Conflict: &storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{Old: []byte("a")}}}, now,
			Claim{ID: holder.ID(), Unmerged: &storage.Unmerged{}}, Key{Holder: until(holder, now), Kept: true},
		},
	} {
		k := c.key
		got := k.claim(at(now), &c.job, is, c.due)
		if !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(k, c.becoming) {
			t.Errorf("%s:\n got %+v, %+v\nwant %+v, %+v", c.what, got, k, c.want, c.becoming)
		}
	}
}

func TestClaim_Answer(t *testing.T) {
	id := Keeper{Job: 5, Created: 1}.ID()
	for _, c := range []struct {
		claim Claim
		want  storage.Enqueued
	}{
		{Claim{ID: id, Gone: true}, storage.Enqueued{ID: id, Duplicate: true, Gone: true}},
		{Claim{Admission: Change, ID: id}, storage.Enqueued{ID: id, Duplicate: true, Replaced: true}},
		{Claim{ID: id, Unmerged: &storage.Unmerged{}}, storage.Enqueued{ID: id, Duplicate: true, Unmerged: &storage.Unmerged{}}},
	} {
		if got, err := c.claim.Answer(2, 9); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, %v", c.claim, got, err)
		}
	}
	for _, c := range []struct {
		first int64
		want  storage.DuplicateError
	}{
		{6, storage.DuplicateError{Index: 2, ID: id, Gone: true}},
		{5, storage.DuplicateError{Index: 2}},
	} {
		var got *storage.DuplicateError
		claim := Claim{Admission: Refuse, ID: id, Gone: true}
		if _, err := claim.Answer(2, c.first); !errors.As(err, &got) || *got != c.want {
			t.Errorf("first %d: %v", c.first, err)
		}
	}
}

func TestFollowing(t *testing.T) {
	id := Keeper{Job: 5, Created: 1}.ID()
	other := errors.New("no")
	for _, c := range []struct {
		answer    storage.Enqueued
		err, fail error
		want      storage.Enqueued
	}{
		{storage.Enqueued{ID: id}, nil, nil, storage.Enqueued{ID: id}},
		{storage.Enqueued{}, &storage.DuplicateError{ID: id, Gone: true}, nil, storage.Enqueued{ID: id, Duplicate: true, Gone: true}},
		{storage.Enqueued{}, other, other, storage.Enqueued{}},
	} {
		if got, err := Following(c.answer, c.err); got != c.want || !errors.Is(err, c.fail) {
			t.Errorf("of %+v, %v: %+v, %v", c.answer, c.err, got, err)
		}
	}
}

func TestKey_release(t *testing.T) {
	const now = 10
	holder, behind := Keeper{Job: 1, Created: 5, Salt: 2}, Keeper{Job: 2, Created: 6, Until: 7, Salt: 4}
	until := func(us int64) Keeper { return Keeper{Job: 1, Created: 5, Until: us} }
	for _, c := range []struct {
		what string
		key  Key
		job  int64
		want Key
		heir int64
	}{
		{"one that waits behind", Key{Holder: holder, Behind: behind, Live: true}, 2, Key{Holder: holder, Live: true}, 0},
		{"another", Key{Holder: holder, Behind: behind, Live: true}, 3, Key{Holder: holder, Behind: behind, Live: true}, 0},
		{"the holder", Key{Holder: holder, Live: true}, 1, Key{Live: true}, 0},
		{"the holder before one that waits", Key{Holder: until(Forever - 1), Behind: behind, Live: true}, 1, Key{Holder: behind, Live: true}, 2},
		{
			"one that waits, and the clock was set back", Key{Holder: holder, Behind: Keeper{Job: 2, Created: 100, Until: 120}, Live: true}, 1,
			Key{Holder: Keeper{Job: 2, Created: 100, Until: now + 20, Since: now}, Live: true}, 2,
		},
		{
			"one that waits for a date, and the clock was set back", Key{Holder: holder, Behind: Keeper{Job: 2, Created: 100, Until: 120}, Live: true, Dated: true}, 1,
			Key{Holder: Keeper{Job: 2, Created: 100, Until: 120}, Live: true}, 2,
		},
		{"its time is over", Key{Holder: until(now), Live: true}, 1, Key{Live: true}, 0},
		{"its time is not over", Key{Holder: until(now + 1), Live: true}, 1, Key{Holder: until(now + 1), Kept: true}, 0},
		{"for ever", Key{Holder: until(Forever), Live: true}, 1, Key{Holder: until(Forever), Kept: true}, 0},
	} {
		k := c.key
		if heir := k.release(c.job, now, true); heir != c.heir || !reflect.DeepEqual(k, c.want) {
			t.Errorf("%s: let in %d, and %+v; want %d and %+v", c.what, heir, k, c.heir, c.want)
		}
	}
	gone := Key{Holder: until(now + 1), Live: true, Kept: true}
	if gone.release(1, now, false); gone.Kept {
		t.Errorf("one that is not kept: %+v", gone)
	}
}

func TestKey_forgo(t *testing.T) {
	until := func(us int64) Keeper { return Keeper{Job: 1, Created: 5, Until: us} }
	for _, c := range []struct {
		what    string
		was, is Key
	}{
		{"for a time, and waits", Key{Holder: until(9), Live: true}, Key{Holder: until(0), Live: true}},
		{"for a time, and is dead", Key{Holder: until(9), Kept: true}, Key{Kept: true}},
		{"for as long as it lives", Key{Holder: until(0), Live: true}, Key{Holder: until(0), Live: true}},
		{"for ever", Key{Holder: until(Forever)}, Key{Holder: until(Forever)}},
		{"another has it", Key{Holder: Keeper{Job: 2, Until: 9}}, Key{Holder: Keeper{Job: 2, Until: 9}}},
	} {
		k := c.was
		if k.forgo(1); k != c.is {
			t.Errorf("%s: %+v, want %+v", c.what, k, c.is)
		}
	}
}

func TestKey_EndTime(t *testing.T) {
	for _, c := range []struct{ was, want Key }{
		{Key{Holder: Keeper{Job: 1, Until: 5}, Live: true}, Key{Holder: Keeper{Job: 1}, Live: true}},
		{Key{Holder: Keeper{Job: 1, Until: 5}}, Key{}},
	} {
		k := c.was
		if k.EndTime(); k != c.want {
			t.Errorf("%+v becomes %+v, want %+v", c.was, k, c.want)
		}
	}
}

func TestKeeper_ID(t *testing.T) {
	if got := (Keeper{Created: 5}).ID(); !got.IsZero() {
		t.Errorf("nobody has the ID %s", got)
	}
	if got, want := (Keeper{Job: 7, Created: 5_000, Salt: 3}).ID(), storage.NewID(at(5_000), 3, 7); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
