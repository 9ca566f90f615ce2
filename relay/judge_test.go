package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Each job of a send is judged by itself. Those of a group that come after a refused one are not tried.
//
//errand:shows what the server will not take | | A job that the server refuses keeps back the later jobs of its group, and no others
func TestJudge(t *testing.T) {
	type send struct {
		jobs    []wire.Job
		want    string
		reasons []string
	}
	for name, c := range map[string]struct {
		rights relay.Rights
		sends  []send
	}{
		"kinds": {relay.Rights{Kinds: []string{"a"}}, []send{{
			[]wire.Job{job("a"), job("b", inGroup("g")), job("a", inGroup("g")), job("a", inGroup("h"))}, "erbe", []string{`kind "b"`},
		}}},
		"priorities": {relay.Rights{MinPriority: -1, MaxPriority: 5}, []send{{
			[]wire.Job{job("a", withPriority(5)), job("a", withPriority(6)), job("a", withPriority(-2))}, "err", []string{"between -1 and 5", "priority -2"},
		}}},
		"what the queue refuses": {relay.Rights{}, []send{
			{[]wire.Job{job("a", withPriority(200)), job("a")}, "re", []string{"errand: priority 200: must be between"}},
			{[]wire.Job{job("a"), job("a", func(j *wire.Job) { j.Tags = []string{"a b", "c d"} })}, "er", []string{`tags[0] "a b": must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}; errand: tags[1]`}},
			{[]wire.Job{job("a", func(j *wire.Job) { j.StartWithin = 1e8 })}, "r", []string{"start_within 100ms"}},
			{[]wire.Job{job("errand.bulk")}, "r", []string{"kind"}},
			{[]wire.Job{job("a", func(j *wire.Job) { j.Unique = &wire.Unique{Key: "k", OnConflict: "x"} })}, "r", []string{"unique.on_conflict"}},
		}},
		"keys": {relay.Rights{}, []send{
			{[]wire.Job{job("a", withKey("k")), job("a", withKey("k"))}, "ed", nil},
			{[]wire.Job{job("a"), job("a", func(j *wire.Job) { j.Unique = &wire.Unique{Key: "k", OnConflict: "fail"} }), job("a")}, "ede", nil},
			{[]wire.Job{job("a", func(j *wire.Job) { j.Unique = &wire.Unique{Key: "k", OnConflict: "replace"} })}, "d", nil},
		}},
		"nothing": {relay.Rights{}, []send{{nil, "", nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, nil, nil)
			d := s.device(deviceName, c.rights)
			enqueued := 0
			for _, send := range c.sends {
				got := d.send(send.jobs...)
				if outcomes(got) != send.want {
					t.Errorf("outcomes %q: want %q: %+v", outcomes(got), send.want, got)
				}
				enqueued += strings.Count(outcomes(got), "e")
				for _, v := range got {
					if v.Outcome == ratchet.Refused && len(send.reasons) > 0 {
						if !strings.Contains(v.Reason, send.reasons[0]) {
							t.Errorf("reason %q: want one of %q", v.Reason, send.reasons[0])
						}
						send.reasons = send.reasons[1:]
					}
				}
				if len(send.reasons) > 0 {
					t.Errorf("reasons %q are missing", send.reasons)
				}
			}
			s.wantJobs(enqueued)
		})
	}
}

// unreadable is a store whose lists of jobs fail while fails is true.
type unreadable struct {
	*sqlite.Store
	fails bool
}

func (u *unreadable) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	if u.fails {
		return storage.Page{}, errand.ErrIO
	}
	return u.Store.Jobs(ctx, f, after, limit)
}

// A failure of the database is no verdict: nothing of the send is taken.
func TestJudge_databaseFails(t *testing.T) {
	s := serve(t, nil, nil)
	store := &unreadable{Store: must(sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil))(t)}
	s.q = must(errand.New(t.Context(), store, quiet(nil)))(t)
	t.Cleanup(func() { _ = s.q.Close() })
	s.h = s.handler(s.q, nil)
	d := s.device(deviceName, relay.Rights{})
	d.send(job("k"))
	clone := *d
	d.send()
	d.send(job("k")) // the clone is two requests behind now, which is no lost answer
	clone.ask()
	if n, err := relay.Accept(t.Context(), s.q, ""); n != 1 || err != nil {
		t.Fatalf("accept: %d, %v", n, err)
	}
	d.ask()
	_, r := d.owner.Send(newID())
	store.fails = true
	if a := d.request(r, job("k"), job("k")); a.Status != http.StatusInternalServerError {
		t.Errorf("status %d, answer %+v", a.Status, a.Answer)
	}
	store.fails = false
	s.wantJobs(2)
	if got := outcomes(d.send(job("k"))); got != "e" {
		t.Errorf("outcomes %q", got)
	}
}

// No device meets the keys and groups of another, but for those that are shared.
func TestJudge_ownKeys(t *testing.T) {
	s := serve(t, nil, nil)
	a := s.device("a", relay.Rights{SharedKeys: []string{"all."}})
	b := s.device("a/b", relay.Rights{SharedKeys: []string{"all.", "site"}})
	long := strings.Repeat("x", 255)
	for _, c := range []struct {
		of       *device
		key      string
		outcome  string
		uniqueAs string
	}{
		{a, "b/k", "e", "a,b/k"},
		{b, "k", "e", "a/b,k"},
		{b, "b/k", "e", "a/b,b/k"},
		{a, "all.1", "e", "all.1"},
		{b, "all.1", "d", ""},
		{a, "site", "e", "a,site"},
		{b, "site", "e", "site"},
		{a, strings.Repeat("x", 1024), "e", "a,84da8a5ddd54bc3cce5a3a0c0d1e0c9b"},
	} {
		if got := outcomes(c.of.send(job("k", withKey(c.key)))); got != c.outcome {
			t.Errorf("key %.20q of %s: outcome %q, want %q", c.key, c.of.name, got, c.outcome)
		} else if all := jobsOf(t, s.q); got == "e" {
			last := all[len(all)-1].Unique
			if len(c.key) < 1000 && last != c.uniqueAs || len(c.key) > 1000 && (len(last) != 2+64 || !strings.HasPrefix(last, "a,")) {
				t.Errorf("key %.20q of %s is %q", c.key, c.of.name, last)
			}
		}
	}
	a.send(job("k", inGroup("g")), job("k", inGroup(long)), job("k", inGroup("all.g")))
	all := jobsOf(t, s.q)
	for i, want := range []string{"a,g", "a,", "all.g"} {
		got := all[len(all)-3+i].Group
		if got != want && (want != "a," || len(got) != 2+64 || !strings.HasPrefix(got, want)) {
			t.Errorf("group %q: want %q", got, want)
		}
	}
}

// A job whose headers are as many as may be is taken as it is, without the time at which it was made. One with more
// is refused.
func TestJudge_headers(t *testing.T) {
	s := serve(t, &errand.Options{MaxHeaders: 1000}, nil)
	d := s.device(deviceName, relay.Rights{})
	sized := func(n int) wire.Job {
		return job("k", func(j *wire.Job) {
			j.Made, j.Headers = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), map[string]string{"a": strings.Repeat("x", n-len(`{"a":""}`))}
		})
	}
	got := d.send(sized(100), sized(1000), sized(990), sized(1001))
	if outcomes(got) != "eeer" || !strings.Contains(got[3].Reason, "headers 1001: must be at most 1000") {
		t.Errorf("verdicts %+v", got)
	}
	for i, j := range jobsOf(t, s.q) {
		j = must(s.q.Job(t.Context(), j.ID))(t)
		if _, made := j.Headers[relay.MadeHeader]; made != (i == 0) || len(j.Headers["a"]) == 0 {
			t.Errorf("job %d has %d headers, and the time: %t", i, len(j.Headers), made)
		}
	}
}

// A queue that is full takes what it has room for. The device is told to come later with the rest.
//
//errand:shows a server without room | | A server whose queue is full takes what there is room for, and has the device wait with the rest
func TestJudge_full(t *testing.T) {
	s := serve(t, &errand.Options{Queues: map[string]errand.QueueOptions{}}, nil)
	if err := s.q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{MaxJobs: new(2)}); err != nil {
		t.Fatal(err)
	}
	d := s.device(deviceName, relay.Rights{})
	if got := outcomes(d.send(job("k"), job("k"), job("k"), job("k"))); got != "eell" || d.retry == 0 {
		t.Errorf("outcomes %q, retry after %d", got, d.retry)
	}
	s.wantJobs(2)
	if c := s.info(deviceName).Counts; c.Enqueued != 2 || c.Later != 2 {
		t.Errorf("counts %+v", c)
	}
}

// The bytes of a day are bounded, by the queue's clock.
func TestJudge_bytesADay(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 50, 0, 0, time.UTC)
	s := serve(t, &errand.Options{Clock: func() time.Time { return now }}, nil)
	d := s.device(deviceName, relay.Rights{BytesADay: 1})
	if got := outcomes(d.send(job("k"), job("k"))); got != "ee" || d.retry != 0 {
		t.Errorf("outcomes %q, retry after %d", got, d.retry)
	}
	if got := outcomes(d.send(job("k"))); got != "l" || d.retry < 500 || d.retry > 600 {
		t.Errorf("outcomes %q, retry after %d", got, d.retry)
	}
	if d.send(); d.retry != 0 {
		t.Errorf("retry after %d of a send without jobs", d.retry)
	}
}

// A send with very many refusals is cut off where their reasons are too long to keep.
func TestJudge_manyReasons(t *testing.T) {
	s := serve(t, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	all := make([]wire.Job, wire.MaxJobs)
	for i := range all {
		all[i] = job("k", func(j *wire.Job) { j.Tags = []string{strings.Repeat("é", 30), strings.Repeat("ü", 30)} })
	}
	got := outcomes(d.send(all...))
	refused := strings.Count(got, "r")
	if got != strings.Repeat("r", refused)+strings.Repeat("l", len(all)-refused) || refused < 200 || refused > 210 || d.retry != 0 {
		t.Errorf("%d of %d are refused, retry after %d", refused, len(got), d.retry)
	}
}

// Middleware refuses a job by its error, sees each job, and may panic: then nothing is written.
func TestJudge_middleware(t *testing.T) {
	var told []string
	middleware := func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, j *errand.Job[errand.RawArgs]) error {
			switch j.Kind {
			case "bad":
				return errors.New("no such pump")
			case "panic":
				panic("of middleware")
			}
			errand.AfterEnqueue(ctx, func(_ errand.Enqueued, err error) { told = append(told, fmt.Sprint(j.Kind, " ", err == nil)) })
			return next(ctx, j)
		}
	}
	s := serve(t, &errand.Options{Middleware: []errand.Middleware{middleware}}, nil)
	d := s.device(deviceName, relay.Rights{})
	got := d.send(job("a"), job("bad"), job("c"))
	if outcomes(got) != "ere" || got[1].Reason != "no such pump" {
		t.Errorf("verdicts %+v", got)
	}
	if want := "[a false a true c true]"; fmt.Sprint(told) != want {
		t.Errorf("told %v: want %s", told, want)
	}
	_, r := d.owner.Send(newID())
	h, m, err := wire.SignRequest(d.head(r), []wire.Job{job("a"), job("panic")}, d.signer)
	if err != nil {
		t.Fatal(err)
	}
	w := newRecording()
	func() {
		defer func() {
			if p := recover(); p != "of middleware" {
				t.Errorf("panic %v", p)
			}
		}()
		s.h.ServeHTTP(w, httpRequest(m, strings.NewReader(string(m.Body))))
	}()
	if a := d.open(h, w.ResponseRecorder); a.Status != http.StatusInternalServerError || strings.Contains(a.Error, "middleware") {
		t.Errorf("status %d %s", a.Status, a.Error)
	}
	s.wantJobs(2)
	if _, set := d.ask(); len(set.Verdicts) != 0 {
		t.Errorf("verdicts %+v of a send that was not taken", set.Verdicts)
	}
}
