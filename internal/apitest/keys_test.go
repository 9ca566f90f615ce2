package apitest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// A job that was evicted before its first attempt has done nothing, so its key is free.
func TestUnique_evicted(t *testing.T) {
	q := openQueue(t, nil)
	if err := q.Configure(t.Context(), errand.Lane{Queue: "small"}, errand.Settings{MaxJobs: new(1), WhenFull: new(errand.EvictOldest)}); err != nil {
		t.Fatal(err)
	}
	o := &errand.JobOptions{Queue: "small", Unique: &errand.Unique{Key: "report", For: time.Hour}}
	enqueue(t, q, note{N: 1}, o)
	enqueue(t, q, note{N: 2}, &errand.JobOptions{Queue: "small"}) // evicts it
	if e, err := q.Enqueue(t.Context(), note{N: 3}, o); err != nil || e.Duplicate {
		t.Errorf("the job after one that was evicted: %+v, %v", e, err)
	}
}

// greeting is a kind whose next release has a field more, as keyGreeting2 is without the tag.
type keyGreeting struct {
	To   string `json:"to"`
	Body string `json:"body,omitempty"`
}

func (keyGreeting) Kind() string { return "greeting" }

type keyGreeting2 struct {
	To       string `json:"to" errand:"unique"`
	Body     string `json:"body,omitempty" errand:"unique"`
	Language string `json:"language"`
}

func (keyGreeting2) Kind() string { return "greeting" }

type keyGreeting3 struct {
	To       string            `json:"to" errand:"unique"`
	Language string            `json:"language"`
	Body     string            `json:"body,omitempty" errand:"unique"`
	More     map[string]string `json:"more"`
}

func (keyGreeting3) Kind() string { return "greeting" }

// A field without the tag that a release adds leaves the keys of jobs as they are, if those that
// were there have the tag: for a type that had no tags before too, in each way into the queue.
func TestUnique_newField(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	open := func() *errand.Queue {
		t.Helper()
		q, err := errand.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		return q
	}
	once := func() *errand.JobOptions {
		return &errand.JobOptions{Unique: &errand.Unique{ByArgs: true, Forever: true}}
	}
	q := open()
	first := enqueue(t, q, keyGreeting{To: "ada"}, once())
	q2, q3 := open(), open()
	same := func(what string, e errand.Enqueued, err error) {
		t.Helper()
		if err != nil || !e.Duplicate || e.ID != first {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}
	e, err := q2.Enqueue(t.Context(), keyGreeting2{To: "ada", Language: "en"}, once())
	same("a field more", e, err)
	e, err = q3.Enqueue(t.Context(), &keyGreeting3{To: "ada", More: map[string]string{"a": "b"}}, once())
	same("two fields more", e, err)
	many, err := q2.EnqueueMany(t.Context(), []errand.NewJob{{Args: keyGreeting2{To: "bob"}, Options: once()}, {Args: keyGreeting2{To: "ada", Language: "fr"}, Options: once()}})
	if err != nil || many[0].Duplicate {
		t.Fatal(many, err)
	}
	same("EnqueueMany", many[1], err)
	err = q2.Tx(t.Context(), func(tx *sql.Tx) error {
		e, err = q2.EnqueueTx(t.Context(), tx, keyGreeting2{To: "ada", Language: "de"}, once())
		return err
	})
	same("EnqueueTx", e, err)
	if e, err := q2.Enqueue(t.Context(), keyGreeting2{To: "ada", Body: "hi"}, once()); err != nil || e.Duplicate {
		t.Errorf("another body: %+v, %v", e, err)
	}
	if id, err := q3.ReleaseUniqueArgs(t.Context(), keyGreeting3{To: "ada", Language: "no matter"}); err != nil || id != first {
		t.Errorf("releasing by args: %v, %v", id, err)
	}
}

type keyBad struct {
	To string `json:"to" errand:"uniqe"`
}

func (keyBad) Kind() string { return "bad" }

type keyHidden struct {
	To string `json:"-" errand:"unique"`
	By string
}

func (keyHidden) Kind() string { return "hidden" }

// A tag without a meaning is refused where its type comes in, with what to write.
func TestUnique_badTags(t *testing.T) {
	q := openQueue(t, nil)
	w := errand.NewWorker(q, nil)
	for _, c := range []struct {
		args   errand.Args
		handle func()
		want   string
	}{
		{keyBad{}, func() { errand.Handle(w, func(context.Context, *errand.Job[keyBad]) error { return nil }) }, `field To of apitest.keyBad must be "secret", not "uniqe"; or "unique", or "unique,secret"`},
		{&keyHidden{}, func() {
			errand.HandleMany(w, func(context.Context, []*errand.Job[*keyHidden]) error { return nil }, errand.BatchOptions{Max: 2})
		}, `field To of apitest.keyHidden has the tag errand:"unique", but is not in the JSON: export it and give it a JSON name, or take the tag away`},
	} {
		_, one := q.Enqueue(t.Context(), c.args, nil)
		_, many := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: c.args}})
		_, released := q.ReleaseUniqueArgs(t.Context(), c.args)
		scheduled := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@every 1h", Args: c.args})
		for what, err := range map[string]error{"Enqueue": one, "EnqueueMany": many, "ReleaseUniqueArgs": released, "Schedule": scheduled} {
			if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", what, err, c.want)
			}
		}
		func() {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, c.want) {
					t.Errorf("Handle panics with %s, want %s", v, c.want)
				}
			}()
			c.handle()
		}()
	}
}

type keyPin struct {
	Pin string `json:"pin" errand:"secret"`
	Who string `json:"who"`
}

func (keyPin) Kind() string { return "pin" }

// Whoever finds a key held learns the key, so that it can be released, also long after its job.
func TestUnique_keyIsKnown(t *testing.T) {
	q := openQueue(t, nil)
	events, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventEnqueued, errand.EventReplaced}}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   errand.Args
		unique errand.Unique
		key    string // empty: a hash
		event  string // empty: the key
		text   string
	}{
		{note{N: 1}, errand.Unique{ByArgs: true, Forever: true}, "", "", ""},
		{note{N: 2}, errand.Unique{Key: "order 17"}, "order 17", "", `: "order 17"`},
		{keyPin{"1234", "ada"}, errand.Unique{ByArgs: true}, "", "sha256:[hidden]", ""},
	} {
		first, err := q.Enqueue(t.Context(), c.args, &errand.JobOptions{Unique: &c.unique})
		if err != nil || first.Key == "" || c.key == "" != strings.HasPrefix(first.Key, "sha256:") || c.key != "" && first.Key != c.key {
			t.Fatalf("%+v, %v", first, err)
		}
		if e := <-events.Events(); c.event == "" && e.Key != first.Key || c.event != "" && e.Key != c.event {
			t.Errorf("event %+v, the key is %s", e, first.Key)
		}
		again, err := q.Enqueue(t.Context(), c.args, &errand.JobOptions{Unique: &c.unique})
		if err != nil || !again.Duplicate || again.Key != first.Key {
			t.Errorf("%+v, %v", again, err)
		}
		c.unique.OnConflict.Mode = errand.Fail
		for _, call := range []func() error{
			func() error {
				_, err := q.Enqueue(t.Context(), c.args, &errand.JobOptions{Unique: &c.unique})
				return err
			},
			func() error {
				_, err := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: note{}}, {Args: c.args, Options: &errand.JobOptions{Unique: &c.unique}}})
				return err
			},
			func() error {
				return q.Tx(t.Context(), func(tx *sql.Tx) error {
					_, err := q.EnqueueTx(t.Context(), tx, c.args, &errand.JobOptions{Unique: &c.unique})
					return err
				})
			},
		} {
			err, held := call(), (*errand.DuplicateError)(nil)
			if !errors.As(err, &held) || held.Key != first.Key || !strings.HasSuffix(err.Error(), first.ID.String()+c.text) {
				t.Errorf("%v, %+v", err, held)
			}
		}
		if id, err := q.ReleaseUnique(t.Context(), c.args.Kind(), again.Key); err != nil || id != first.ID {
			t.Errorf("released: %v, %v", id, err)
		}
	}
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{Mode: errand.Replace}}}
	for _, want := range []errand.EventType{errand.EventEnqueued, errand.EventReplaced} {
		if e, err := q.Enqueue(t.Context(), note{}, o); err != nil || e.Key != "k" {
			t.Errorf("%+v, %v", e, err)
		}
		if e := <-events.Events(); e.Type != want || e.Key != "k" {
			t.Errorf("event %+v, want that it is %s with key k", e, want)
		}
	}
}

// A key that outlives its job can be released by the args alone, and by what Enqueue returns.
func TestQueue_ReleaseUniqueArgs(t *testing.T) {
	q := openQueue(t, &errand.Options{Retention: -1})
	once := &errand.JobOptions{Unique: &errand.Unique{ByArgs: true, Forever: true}}
	for _, release := range []func(held errand.Enqueued) error{
		func(errand.Enqueued) error { _, err := q.ReleaseUniqueArgs(t.Context(), &note{Text: "a"}); return err },
		func(errand.Enqueued) error {
			_, err := q.ReleaseUniqueArgs(t.Context(), errand.RawArgs{OfKind: "note", JSON: json.RawMessage(`{"N": 0, "Text": "a"}`)})
			return err
		},
		func(held errand.Enqueued) error { _, err := q.ReleaseUnique(t.Context(), "note", held.Key); return err },
	} {
		id := enqueue(t, q, note{Text: "a"}, once)
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		held, err := q.Enqueue(t.Context(), note{Text: "a"}, once)
		if err != nil || !held.Duplicate || !held.Gone {
			t.Fatalf("%+v, %v", held, err)
		}
		if err := release(held); err != nil {
			t.Error(err)
		}
	}
	for _, args := range []errand.Args{nil, (*note)(nil), note{Text: strings.Repeat("a", 300<<10)}, note{Text: "\xff"}} {
		if _, err := q.ReleaseUniqueArgs(t.Context(), args); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("%T: %v", args, err)
		}
	}
	if _, err := q.ReleaseUniqueArgs(t.Context(), note{Text: "free"}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("a key that is free: %v", err)
	}
}

// The end of a job tells which keys the jobs of its Then found held.
func TestUnique_keyIsKnown_then(t *testing.T) {
	q := openQueue(t, nil)
	holder := enqueue(t, q, note{}, &errand.JobOptions{Queue: "later", Unique: &errand.Unique{Key: "k"}})
	events, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventDone, errand.EventEnqueued}, Queue: "default"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, note{}, nil)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default"}})
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		if job.Args.N == 1 {
			return nil
		}
		return errors.Join(job.Then(note{N: 2}, &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}), job.Then(note{N: 1}, &errand.JobOptions{Unique: &errand.Unique{Key: "free"}}))
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var got []string
	for len(got) < 4 {
		e := <-events.Events()
		got = append(got, fmt.Sprint(e.Type, " ", e.Key, e.Duplicates, e.DuplicateKeys))
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{"done [" + holder.String() + "] [k]", "done [] []", "enqueued [] []", "enqueued free[] []"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Args that Merge has made and that do not fit are not the caller's fault, and the error says so.
func TestOnConflict_Merge_tooLarge(t *testing.T) {
	q := openQueue(t, &errand.Options{MaxArgs: 1000, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			if strings.Contains(string(job.Args.JSON), "grow") {
				job.Args.JSON = json.RawMessage(`"` + strings.Repeat("g", 999) + `"`)
			}
			return next(ctx, job)
		}
	}}})
	result := note{}
	unique := errand.Unique{Key: "document 17", OnConflict: errand.OnConflict{Mode: errand.Replace, Merge: func(_, _ errand.Args) (errand.Args, error) { return result, nil }}}
	byArgs := errand.Unique{ByArgs: true, OnConflict: unique.OnConflict}
	first := enqueue(t, q, note{Text: "first"}, &errand.JobOptions{Unique: &unique})
	enqueue(t, q, note{Text: "by"}, &errand.JobOptions{Unique: &byArgs})
	add := func(o *errand.Unique, text string) error {
		_, err := q.Enqueue(t.Context(), note{Text: text}, &errand.JobOptions{Unique: o})
		return err
	}
	addTx := func(o *errand.Unique, text string) error {
		return q.Tx(t.Context(), func(tx *sql.Tx) error {
			_, err := q.EnqueueTx(t.Context(), tx, note{Text: text}, &errand.JobOptions{Unique: o})
			return err
		})
	}
	for what, call := range map[string]func(*errand.Unique, string) error{"Enqueue": add, "EnqueueTx": addTx} {
		for _, c := range []struct {
			unique *errand.Unique
			text   string
			result note
			size   int
			key    string
		}{
			{&unique, "next", note{Text: strings.Repeat("x", 1000)}, 1017, "document 17"},
			{&unique, "next", note{Text: "grow"}, 1001, "document 17"}, // by middleware
			{&byArgs, "by", note{Text: strings.Repeat("x", 1000)}, 1017, "sha256:"},
		} {
			result = c.result
			err, full := call(c.unique, c.text), (*errand.MergeError)(nil)
			if !errors.As(err, &full) || errors.Is(err, errand.ErrInvalid) || full.Size != c.size || full.Max != 1000 || full.Kind != "note" || !strings.HasPrefix(full.Key, c.key) {
				t.Errorf("%s: %v, %+v", what, err, full)
				continue
			}
			if !strings.Contains(err.Error(), "Merge") || !strings.Contains(err.Error(), fmt.Sprint(c.size, " bytes")) || strings.Contains(err.Error(), `"document 17"`) != (c.unique == &unique) || strings.Contains(err.Error(), "sha256") {
				t.Errorf("%s: %v", what, err)
			}
		}
		result = note{Text: "\xff"}
		if err := call(&unique, "next"); faultFields(err) == "" || !strings.Contains(err.Error(), "unique.on_conflict.merge") {
			t.Errorf("%s of what is no UTF-8: %v", what, err)
		}
		if err := call(&unique, strings.Repeat("x", 1000)); !errors.Is(err, errand.ErrInvalid) || strings.Contains(err.Error(), "erge") {
			t.Errorf("%s of args that are too large before Merge: %v", what, err)
		}
	}
	if info, err := q.Job(t.Context(), first); err != nil || string(info.Args) != `{"Text":"first","N":0}` {
		t.Errorf("the waiting job has args %s, %v", info.Args, err)
	}
}
