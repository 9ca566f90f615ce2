package relay

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// put enqueues a job into the queue that is passed on.
func (d *device) put(t testing.TB, o errand.JobOptions) errand.ID {
	t.Helper()
	o.Queue = "up"
	return must(d.Enqueue(t.Context(), reading{1}, &o)).ID
}

func (d *device) info(t testing.TB, id errand.ID) errand.JobInfo {
	t.Helper()
	return must(d.Job(t.Context(), id))
}

func (d *device) wait(t testing.TB, id errand.ID, want errand.State) errand.JobInfo {
	t.Helper()
	until(t, "a job is "+string(want), func() bool { return d.info(t, id).State == want })
	return d.info(t, id)
}

// came returns what came of a job.
func (f *fake) came(t testing.TB, id errand.ID) wire.Job {
	t.Helper()
	all := f.taken()
	i := slices.IndexFunc(all, func(j wire.Job) bool { return j.ID == wire.ID(id) })
	if i < 0 {
		t.Fatalf("job %s has not come", id)
	}
	return all[i]
}

// All of a job comes to the server that is not the device's own business.
func TestForward_travels(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Unique = map[string]errand.Unique{"reading": {For: time.Hour, OnConflict: errand.OnConflict{
		Mode: errand.Debounce, Quiet: 2 * time.Second, MaxWait: time.Minute, Fresh: true,
	}}}
	id := d.put(t, errand.JobOptions{
		Priority: 7, Tags: []string{"b", "a"}, Group: "pump", Timeout: time.Minute,
		Headers:     map[string]string{"traceparent": "00-01", "x": "y"},
		Unique:      &errand.Unique{Key: "k"},
		StartWithin: time.Hour, FinishWithin: 2 * time.Hour, OnExpire: errand.Dead,
	})
	plain := d.put(t, errand.JobOptions{})
	was := d.info(t, id)
	d.run(t)
	d.wait(t, id, errand.Done)
	d.wait(t, plain, errand.Done)
	j := f.came(t, id)
	if j.Kind != "reading" || string(j.Args) != `{"n":1}` || j.Priority != 7 || j.Group != "pump" || !slices.Equal(j.Tags, []string{"a", "b"}) {
		t.Errorf("%+v", j)
	}
	if want := map[string]string{"traceparent": "00-01", "x": "y"}; !maps.Equal(j.Headers, want) {
		t.Errorf("headers %q, want %q", j.Headers, want)
	}
	want := wire.Unique{Key: "k", For: 3600e9, OnConflict: "debounce", Quiet: 2e9, MaxWait: 60e9, Fresh: true}
	if j.Unique == nil || *j.Unique != want {
		t.Errorf("unique %+v, want %+v", j.Unique, want)
	}
	if !j.Made.Equal(was.CreatedAt) || j.Made.Location() != time.UTC {
		t.Errorf("made %v, want %v", j.Made, was.CreatedAt)
	}
	if left := time.Duration(j.StartWithin); left > time.Hour || left < 50*time.Minute {
		t.Errorf("%v are left to start", left)
	}
	if left := time.Duration(j.FinishWithin); left > 2*time.Hour || left < 110*time.Minute {
		t.Errorf("%v are left to finish", left)
	}
	if j.OnExpire != "dead" {
		t.Errorf("on expire %q", j.OnExpire)
	}
	j = f.came(t, plain)
	if j.Unique != nil || j.Group != "" || j.StartWithin != 0 || j.FinishWithin != 0 || j.OnExpire != "" || j.Headers != nil || j.Tags != nil {
		t.Errorf("a plain job came as %+v", j)
	}
}

// The unique key of a kind that Options does not name is held there until the job has ended.
func TestForward_unique(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.options.Unique = map[string]errand.Unique{"other": {Forever: true}}
	id := d.put(t, errand.JobOptions{Unique: &errand.Unique{Key: "k", Forever: true, OnConflict: errand.OnConflict{Mode: errand.Fail}}})
	d.run(t)
	d.wait(t, id, errand.Done)
	if u := f.came(t, id).Unique; u == nil || *u != (wire.Unique{Key: "k"}) {
		t.Errorf("unique %+v", u)
	}
}

// errand's own headers stay here: the server would refuse them.
func TestForward_ownHeaders(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	d.run(t)
	id := d.put(t, errand.JobOptions{Headers: map[string]string{"x": "y"}})
	d.wait(t, id, errand.Done)
	p := &parcel{Job: &errand.Job[errand.RawArgs]{ID: id, Kind: "reading", Args: errand.RawArgs{JSON: json.RawMessage("{}")}, Headers: map[string]string{"errand.x": "1", "x": "y"}}}
	if err := (&forwarder{queue: d.Queue}).pack(p, errand.JobInfo{}); err != nil || !maps.Equal(p.job.Headers, map[string]string{"x": "y"}) {
		t.Errorf("headers %q, %v", p.job.Headers, err)
	}
}

// A window of which less than a second is left ends here, as the job says.
func TestForward_windows(t *testing.T) {
	d := newDevice(t, newFake(t))
	now := d.Clock().Now
	for _, c := range []struct {
		what            string
		start, deadline time.Duration // from now; zero: none
		expire          errand.State
		want            errand.State // empty: it travels
	}{
		{"none", 0, 0, "", ""},
		{"enough", time.Minute, time.Minute, errand.Dead, ""},
		{"too little to start", 500 * time.Millisecond, 0, errand.Expired, errand.Cancelled},
		{"too little to start, and it is to die", 500 * time.Millisecond, 0, errand.Dead, errand.Dead},
		{"too little to finish", 0, 500 * time.Millisecond, "", errand.Dead},
		{"nothing", -time.Hour, -time.Hour, errand.Dead, errand.Dead},
	} {
		at := func(left time.Duration) time.Time {
			if left == 0 {
				return time.Time{}
			}
			return now.Add(left)
		}
		p := &parcel{Job: &errand.Job[errand.RawArgs]{ID: errand.ID{1}, Kind: "reading", Args: errand.RawArgs{JSON: []byte("{}")}, Deadline: at(c.deadline)}}
		if err := (&forwarder{queue: d.Queue}).pack(p, errand.JobInfo{StartBy: at(c.start), OnExpire: c.expire}); err != nil {
			t.Fatal(err)
		}
		err := p.window(now)
		got := errand.State("")
		switch v, _ := errand.VerdictOf(err); v.Kind {
		case errand.VerdictPermanent:
			got = errand.Dead
		case errand.VerdictCancel:
			got = errand.Cancelled
		}
		if got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// What is left of a window is that of the send that the server takes: a job may be in hand for long before it.
func TestForward_windowsInHand(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	var failed time.Time
	f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
		f.mu.Lock()
		first := h.Kind == ratchet.Send && failed.IsZero()
		if first {
			failed = d.Clock().Now.Add(-time.Microsecond) // as far as what is left may be rounded
		}
		f.mu.Unlock()
		if first {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(w)
	}
	id := d.put(t, errand.JobOptions{StartWithin: time.Hour, FinishWithin: 2 * time.Hour})
	was := d.info(t, id)
	d.run(t)
	d.wait(t, id, errand.Done)
	j := f.came(t, id)
	if at := was.StartBy.Add(-time.Duration(j.StartWithin)); at.Before(failed) {
		t.Errorf("%v are left to start, reckoned %v before the send", j.StartWithin, failed.Sub(at))
	}
	if at := was.Deadline.Add(-time.Duration(j.FinishWithin)); at.Before(failed) {
		t.Errorf("%v are left to finish, reckoned %v before the send", j.FinishWithin, failed.Sub(at))
	}
}

// A window that closes while the job is in hand has it end here.
func TestStream_windowCloses(t *testing.T) {
	d := newDevice(t, newFake(t))
	s := d.forward(t, d.worker()).streams[0]
	c := &call{errs: errand.BatchError{}, left: 3, done: make(chan struct{})}
	parcelOf := func(n byte, group string, startBy time.Time) *parcel {
		return &parcel{Job: &errand.Job[errand.RawArgs]{ID: errand.ID{15: n}, Group: group}, call: c, startBy: startBy}
	}
	now := d.Clock().Now
	s.waiting = []*parcel{parcelOf(1, "g", now), parcelOf(2, "g", time.Time{}), parcelOf(3, "", now.Add(time.Hour))}
	if err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.sent) != 1 || s.sent[0].ID != (errand.ID{15: 3}) || len(s.waiting) != 0 {
		t.Errorf("%d are sent and %d wait, want the third to be sent", len(s.sent), len(s.waiting))
	}
	if v, _ := errand.VerdictOf(c.errs[errand.ID{15: 1}]); v.Kind != errand.VerdictCancel {
		t.Errorf("the first ends with %v, want it cancelled", c.errs[errand.ID{15: 1}])
	}
	if err := c.errs[errand.ID{15: 2}]; !errors.Is(err, door.ErrUntouched) {
		t.Errorf("the one behind it ends with %v, want it untouched", err)
	}
}

// A job that came from another device has its place here, and is not passed on in a circle.
func TestForward_origin(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	id := d.put(t, errand.JobOptions{Origin: errand.Origin{Device: "pi-3", ID: "7"}})
	own := d.put(t, errand.JobOptions{})
	d.run(t)
	if j := d.wait(t, id, errand.Dead); j.Reason != errand.ReasonPermanent {
		t.Errorf("reason %s", j.Reason)
	}
	d.wait(t, own, errand.Done)
	f.wantOnce(t, 1)
}

// A delay passes here.
func TestForward_delay(t *testing.T) {
	f := newFake(t)
	d := newDevice(t, f)
	later := d.put(t, errand.JobOptions{Delay: time.Hour})
	soon := d.put(t, errand.JobOptions{Delay: 10 * time.Millisecond})
	d.run(t)
	d.wait(t, soon, errand.Done)
	if j := d.info(t, later); j.State != errand.Scheduled {
		t.Errorf("the job of later is %s", j.State)
	}
	f.wantOnce(t, 1)
	f.came(t, soon)
}
