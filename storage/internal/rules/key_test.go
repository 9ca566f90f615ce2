package rules

import (
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// second is a second of the times here.
const second = 1_000_000

func at(us int64) time.Time { return time.UnixMicro(us) }

func TestKey_Conflict(t *testing.T) {
	waits := func(s storage.State, attempt int) *Waiting {
		return &Waiting{State: s, Counters: storage.Counters{Attempt: attempt}}
	}
	ready, begun, running := waits(storage.Ready, 0), waits(storage.Scheduled, 1), waits(storage.Running, 1)
	for _, c := range []struct {
		what  string
		mode  storage.ConflictMode
		key   Key
		group string
		want  Verdict
	}{
		{"keep", storage.Keep, Key{Live: true, Waiting: ready}, "", Duplicate},
		{"fail", storage.Fail, Key{Live: true, Waiting: ready}, "", Refuse},
		{"a job waits", storage.Replace, Key{Live: true, Waiting: ready}, "", Change},
		{"one that is put off waits", storage.Replace, Key{Live: true, Waiting: begun}, "", Change},
		{"a job that has the key for ever waits", storage.Debounce, Key{Live: true, Until: Forever, Waiting: ready}, "", Change},
		{"a member waits", storage.Replace, Key{Live: true, Waiting: ready}, "g", Change},
		{"for After none has begun", storage.After, Key{Live: true, Waiting: ready}, "", Change},
		{"for After the one that waits has begun", storage.After, Key{Live: true, Waiting: begun}, "", Follow},
		{"the holder runs", storage.Replace, Key{Live: true, Waiting: running}, "", Follow},
		{"the holder runs, and has the key for a time", storage.Replace, Key{Live: true, Until: second, Waiting: running}, "", Follow},
		{"the holder runs, and has the key for ever", storage.Replace, Key{Live: true, Until: Forever, Waiting: running}, "", Duplicate},
		{"the holder of a member runs", storage.Replace, Key{Live: true, Waiting: running}, "g", Duplicate},
		{"the holder has ended, and has the key for a time", storage.Replace, Key{Until: second}, "", Succeed},
		{"the holder of a member has ended, and has the key for a time", storage.Replace, Key{Until: second}, "g", Succeed},
		{"the holder has ended, and has the key for ever", storage.Replace, Key{Until: Forever}, "", Duplicate},
		{"the holder is missing, by damage", storage.Replace, Key{}, "", Duplicate},
	} {
		j := storage.NewJob{Unique: "u", Group: c.group, Conflict: &storage.Conflict{Mode: c.mode}}
		if got := c.key.Conflict(&j); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if got := (&Key{Live: true, Waiting: ready}).Conflict(&storage.NewJob{Unique: "u"}); got != Duplicate {
		t.Errorf("without a Conflict: %d, want %d", got, Duplicate)
	}
}

func TestKey_Unmerged(t *testing.T) {
	waits := &Waiting{State: storage.Ready, Args: []byte("a")}
	runs := &Waiting{State: storage.Running, Args: []byte("a")}
	for _, c := range []struct {
		what string
		key  *Key
		old  []byte
		want *storage.Unmerged
	}{
		{"nobody has the key", nil, nil, nil},
		{"nobody has the key any more", nil, []byte("a"), &storage.Unmerged{}},
		{"made of what waits", &Key{Live: true, Waiting: waits}, []byte("a"), nil},
		{"made of what has changed", &Key{Live: true, Waiting: waits}, []byte("b"), &storage.Unmerged{Found: []byte("a")}},
		{"made of nothing", &Key{Live: true, Waiting: waits}, nil, &storage.Unmerged{Found: []byte("a")}},
		{"made of nothing, and the holder runs", &Key{Live: true, Waiting: runs}, nil, nil},
		{"made of what runs now", &Key{Live: true, Waiting: runs}, []byte("a"), &storage.Unmerged{}},
		{"made of args that are empty", &Key{Live: true, Waiting: &Waiting{State: storage.Ready, Args: []byte{}}}, []byte{}, nil},
		{"to be made of args that are empty", &Key{Live: true, Waiting: &Waiting{State: storage.Ready}}, nil, &storage.Unmerged{Found: []byte{}}},
	} {
		got := c.key.Unmerged(&storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{Old: c.old}})
		if (got == nil) != (c.want == nil) || got != nil && ((got.Found == nil) != (c.want.Found == nil) || string(got.Found) != string(c.want.Found)) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestWaiting_Replaced(t *testing.T) {
	const now = 100 * second
	counters := storage.Counters{Attempt: 2, Retry: 2, Crashes: 1, Snoozes: 3}
	w := func(s storage.State, created, due int64) Waiting {
		return Waiting{State: s, Created: created, Due: due, Counters: counters}
	}
	for _, c := range []struct {
		what  string
		was   Waiting
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
		is, put := c.was.Replaced(at(now), &c.c)
		want := counters
		if c.c.Fresh {
			want = storage.Counters{Attempt: 2}
		}
		if is.State != c.state || is.Due != c.due || is.Delay != c.delay || put != c.put || is.Counters != want {
			t.Errorf("%s: %+v, put %v", c.what, is, put)
		}
	}
	// An attempt has not put it off, so that it stays due later.
	first := Waiting{State: storage.Scheduled, Due: 200 * second}
	if is, put := first.Replaced(at(now), &storage.Conflict{Mode: storage.Replace, Fresh: true}); put || is.Due != 200*second {
		t.Errorf("fresh before the first attempt: %+v, put %v", is, put)
	}
}

func TestKey_Renew(t *testing.T) {
	for _, c := range []struct {
		what    string
		key     Key
		now     int64
		renewed bool
		until   int64
		over    bool
	}{
		{"it holds", Key{Created: 1, Until: 10}, 9, false, 10, false},
		{"it is over", Key{Created: 1, Until: 10}, 10, false, 10, true},
		{"the holder lives", Key{Created: 1, Until: 10, Live: true}, 10, false, 10, false},
		{"for ever", Key{Created: 1, Until: Forever}, 10, false, Forever, false},
		{"with its life", Key{Created: 1}, 10, false, 0, false},
		{"the clock was set back", Key{Created: 100, Until: 110}, 5, true, 15, false},
		{"the clock was set back, and the holder lives", Key{Created: 100, Until: 110, Live: true}, 5, false, 110, false},
		{"the clock was set back before a time in the past", Key{Created: 100, Until: 100}, 5, false, 100, false},
		{"the clock was set back, for ever", Key{Created: 100, Until: Forever}, 5, false, Forever, false},
		{"enqueued now", Key{Created: 5, Until: 15}, 5, false, 15, false},
	} {
		k := c.key
		if got := k.Renew(c.now); got != c.renewed || k.Until != c.until || k.Over(c.now) != c.over {
			t.Errorf("%s: %v, until %d, over %v, want %v, %d, %v", c.what, got, k.Until, k.Over(c.now), c.renewed, c.until, c.over)
		}
	}
}

func TestKey_Ended(t *testing.T) {
	for _, c := range []struct {
		until   int64
		follows bool
		want    Heir
	}{
		{0, false, Nobody}, {10, false, Nobody}, {11, false, Holder}, {Forever, false, Holder}, {0, true, Follower}, {11, true, Follower},
	} {
		if got := (&Key{Until: c.until}).Ended(10, c.follows); got != c.want {
			t.Errorf("until %d, follows %v: %d, want %d", c.until, c.follows, got, c.want)
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

func TestKey_Enter(t *testing.T) {
	w := Waiting{State: storage.Ready, Created: 7, Due: 8}
	before := Key{Created: 1, Until: 5, Live: true, Waiting: &Waiting{Created: 1}}
	for _, c := range []struct {
		what    string
		verdict Verdict
		want    Key
	}{
		{"nothing enters", Duplicate, before},
		{"the call fails", Refuse, before},
		{"one that waits is changed", Change, Key{Created: 1, Until: 5, Live: true, Waiting: &w}},
		{"one waits behind the holder", Follow, Key{Created: 1, Until: 5, Live: true, Waiting: &w}},
		{"one takes the key over", Succeed, Key{Created: 7, Until: 9, Live: true, Waiting: &w}},
	} {
		k := before
		k.Live = c.verdict != Succeed
		k.Enter(c.verdict, 9, w)
		if !reflect.DeepEqual(k, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, k, c.want)
		}
	}
}

func TestKey_Leave(t *testing.T) {
	w := &Waiting{Created: 7}
	for _, c := range []struct {
		what string
		heir Heir
		want Key
	}{
		{"nobody", Nobody, Key{}},
		{"the job behind", Follower, Key{Created: 7, Until: 9, Live: true, Waiting: w}},
		{"the holder", Holder, Key{Created: 1, Until: 5}},
	} {
		k := Key{Created: 1, Until: 5, Live: true, Waiting: w}
		if k.Leave(c.heir, 7, 9); !reflect.DeepEqual(k, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, k, c.want)
		}
	}
}
