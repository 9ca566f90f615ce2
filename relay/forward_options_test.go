package relay

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// fields returns the fields of the FieldErrors in err, in their order.
func fields(err error) (all []string) {
	switch e := err.(type) { //nolint:errorlint // errors.As finds one of several
	case *errand.FieldError:
		return []string{e.Field}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, fields(one)...)
		}
	case interface{ Unwrap() error }:
		return fields(e.Unwrap())
	}
	return all
}

// refused returns the fields that Forward refuses.
func (d *device) refused(q *errand.Queue, change func(*Options)) []string {
	o := d.options
	if change != nil {
		change(&o)
	}
	return fields(Forward(errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"up", "other"}}), &o))
}

func TestForward_badOptions(t *testing.T) {
	d := newDevice(t, newFake(t))
	for _, c := range []struct {
		what   string
		change func(*Options)
		want   []string
	}{
		{"no server", func(o *Options) { o.Server = "" }, []string{"server"}},
		{"a server that is no name", func(o *Options) { o.Server = "a b" }, []string{"server"}},
		{"no device", func(o *Options) { o.Device = "" }, []string{"device"}},
		{"a device that is no name", func(o *Options) { o.Device = "pi/17 " }, []string{"device"}},
		{"no queue", func(o *Options) { o.Queue = "" }, []string{"queue"}},
		{"a prefix", func(o *Options) { o.Queue = "up/*" }, []string{"queue"}},
		{"no URL", func(o *Options) { o.URL = "" }, []string{"url"}},
		{"no host", func(o *Options) { o.URL = "https:///relay" }, []string{"url"}},
		{"no URL at all", func(o *Options) { o.URL = "https://%zz" }, []string{"url"}},
		{"http to a name", func(o *Options) { o.URL = "http://example.org/relay" }, []string{"url"}},
		{"http to an address", func(o *Options) { o.URL = "http://192.0.2.1/relay" }, []string{"url"}},
		{"http to what only begins like loopback", func(o *Options) { o.URL = "http://127.0.0.1.example.org/" }, []string{"url"}},
		{"another scheme", func(o *Options) { o.URL = "ftp://127.0.0.1/" }, []string{"url"}},
		{"no key", func(o *Options) { o.Key = nil }, []string{"key"}},
		{"a server key that is none", func(o *Options) { o.ServerKey = "secret" }, []string{"server_key"}},
		{"a private server key", func(o *Options) { o.ServerKey = serverSeed }, []string{"server_key"}},
		{"too few streams", func(o *Options) { o.Streams = -1 }, []string{"streams"}},
		{"too many streams", func(o *Options) { o.Streams = 65 }, []string{"streams"}},
		{"a unique key", func(o *Options) { o.Unique = map[string]errand.Unique{"a": {Key: "k"}} }, []string{"unique[a]"}},
		{"a merge", func(o *Options) {
			o.Unique = map[string]errand.Unique{"a": {OnConflict: errand.OnConflict{Merge: func(_, new errand.Args) (errand.Args, error) { return new, nil }}}}
		}, []string{"unique[a]"}},
		{"unique args", func(o *Options) { o.Unique = map[string]errand.Unique{"a": {ByArgs: true}} }, []string{"unique[a]"}},
		{"several", func(o *Options) { o.Device, o.Key, o.Streams = "", nil, 100 }, []string{"device", "key", "streams"}},
		{"all", func(o *Options) { *o = Options{} }, []string{"server", "device", "queue", "url", "key"}},
	} {
		got := d.refused(d.Queue, c.change)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: Forward refuses %q, want %q", c.what, got, c.want)
		}
	}
	for _, url := range []string{"http://localhost:1/", "http://[::1]:1/", "http://127.8.9.10/", "https://example.org"} {
		if got := d.refused(d.Queue, func(o *Options) { o.URL = url }); got != nil {
			t.Errorf("%s: Forward refuses %q", url, got)
		}
	}
	if err := Forward(errand.NewWorker(d.Queue, nil), nil); len(fields(err)) == 0 {
		t.Errorf("no options: %v", err)
	}
}

// What the file says of a queue since the first start holds.
func TestForward_otherOptions(t *testing.T) {
	d := newDevice(t, newFake(t))
	if got := d.refused(d.Queue, nil); got != nil {
		t.Fatalf("Forward refuses %q", got)
	}
	for field, change := range map[string]func(*Options){
		"streams": func(o *Options) { o.Streams = 5 },
		"device":  func(o *Options) { o.Device = "pi-18" },
		"server":  func(o *Options) { o.Server = "hub-2" },
	} {
		if got := d.refused(d.Queue, change); !slices.Equal(got, []string{field}) {
			t.Errorf("another %s: Forward refuses %q", field, got)
		}
	}
	if got := d.refused(d.Queue, func(o *Options) { o.Streams = defaultStreams }); got != nil {
		t.Errorf("the default written out: Forward refuses %q", got)
	}
}

func TestForward_relaxed(t *testing.T) {
	d := newDevice(t, newFake(t))
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "relaxed.db"), &sqlite.Options{Durability: sqlite.Relaxed})
	if err != nil {
		t.Fatal(err)
	}
	q := must(errand.New(t.Context(), store, &errand.Options{Logger: slog.New(slog.DiscardHandler)}))
	defer q.Close()
	if got := d.refused(q, nil); !slices.Equal(got, []string{"durability"}) {
		t.Errorf("Forward refuses %q", got)
	}
}

// A queue for which another worker has handlers is refused, and one that another worker passes on is not.
func TestForward_workedToo(t *testing.T) {
	d := newDevice(t, newFake(t))
	w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}})
	errand.Handle(w, func(context.Context, *errand.Job[reading]) error { return nil })
	stop := d.start(t, w)
	until(t, "the worker is there", func() bool { return len(must(d.Workers(t.Context()))) == 1 })
	if got := d.refused(d.Queue, nil); !slices.Equal(got, []string{"queue"}) {
		t.Errorf("Forward refuses %q beside a worker with handlers", got)
	}
	other := d.options
	other.Queue = "other"
	if err := Forward(errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"other"}}), &other); err != nil {
		t.Errorf("another queue: %v", err)
	}
	stop()
	until(t, "the worker is gone", func() bool { return len(must(d.Workers(t.Context()))) == 0 })
	d.run(t)
	until(t, "the worker is there", func() bool { return len(must(d.Workers(t.Context()))) == 1 })
	if got := d.refused(d.Queue, nil); got != nil {
		t.Errorf("Forward refuses %q beside one that passes the queue on", got)
	}
}

// What the device keeps of jobs that are done is what Keep says, unless somebody has set it.
func TestForward_keep(t *testing.T) {
	d := newDevice(t, newFake(t))
	kept := func(o *Options) string {
		if got := d.refused(d.Queue, func(to *Options) { *to = *o }); got != nil {
			t.Fatalf("Forward refuses %q", got)
		}
		for _, s := range must(d.Settings(t.Context())) {
			if s.Lane == (errand.Lane{Queue: o.Queue}) && s.Retention != nil {
				return fmt.Sprint(*s.Retention)
			}
		}
		return "nothing"
	}
	o := d.options
	if got := kept(&o); got != "168h0m0s" {
		t.Errorf("by default the device keeps jobs for %s", got)
	}
	if o.Keep = -1; kept(&o) != "168h0m0s" {
		t.Error("a setting that was there is another one")
	}
	if o.Queue = "other"; kept(&o)[0] != '-' {
		t.Errorf("with a negative Keep the device keeps jobs for %s", kept(&o))
	}
}
