package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

func topicsOf(t testing.TB, q *errand.Queue) door.Topics[errand.NewJob] {
	t.Helper()
	all, err := door.Open[errand.NewJob](q)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// delivery is a publication with n jobs.
func delivery(id string, n int) door.Publication[errand.NewJob] {
	p := door.Publication[errand.NewJob]{Message: storage.Message{ID: id, Topic: "orders", Body: []byte("body of " + id)}}
	for i := range n {
		p.Jobs = append(p.Jobs, errand.NewJob{Args: note{id, i}})
	}
	return p
}

func TestTopics_Publish(t *testing.T) {
	q := openQueue(t, nil)
	all, ctx := topicsOf(t, q), t.Context()
	out, err := all.Publish(ctx, []door.Publication[errand.NewJob]{delivery("a", 2), delivery("b", 1), delivery("a", 3)})
	if err != nil || len(out) != 3 || len(out[0].Jobs) != 2 || len(out[1].Jobs) != 1 || !out[2].Duplicate || out[2].ID != "a" || out[2].Jobs != nil {
		t.Fatalf("Publish returned %+v, %v", out, err)
	}
	m, err := all.Message(ctx, "a")
	if err != nil || string(m.Body) != "body of a" || m.Topic != "orders" || m.PublishedAt.IsZero() {
		t.Errorf("the message is %+v, %v", m, err)
	}
	page, err := q.Jobs(ctx, errand.JobFilter{Tag: storage.MessageTag("a")}, nil)
	if err != nil || len(page.Jobs) != 2 {
		t.Errorf("jobs of the message: %v, %v", page.Jobs, err)
	}
	if _, err := all.Message(ctx, "c"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("a message that was never published: %v", err)
	}
	revision, err := all.PutEntries(ctx, []storage.Entry{{Class: "c", Name: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	m, revisions, err := all.MessageWith(ctx, "a", storage.EntryName{Class: "c", Name: "o"}, storage.EntryName{Class: "c", Name: "n"})
	if err != nil || string(m.Body) != "body of a" || !slices.Equal(revisions, []int64{0, revision}) {
		t.Errorf("the message is %+v, %v, %v", m, revisions, err)
	}
	_, _, err = all.MessageWith(ctx, "a b", storage.EntryName{Class: "C", Name: "n"}, storage.EntryName{Class: "c", Name: "a b"})
	wantFaults(t, err, fault{"id", `"a b"`, "must match [A-Za-z0-9._:-]{1,128}"}, fault{"entries[0].class", `"C"`, "must match [a-z][a-z0-9_-]{0,31}"},
		fault{"entries[1].name", `"a b"`, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,199}"})
	_, _, err = all.MessageWith(ctx, "a", make([]storage.EntryName, 5)...)
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "entries" {
		t.Errorf("five entries: %v", err)
	}
	first, next, err := all.Messages(ctx, "orders", time.Time{}, "", 1)
	if err != nil || len(first) != 1 || first[0].ID != "a" || next == "" {
		t.Fatalf("Messages returned %+v, %q, %v", first, next, err)
	}
	rest, next, err := all.Messages(ctx, "orders", time.Time{}, next, 1)
	if err != nil || len(rest) != 1 || rest[0].ID != "b" || next != "" {
		t.Errorf("Messages returned %+v, %q, %v", rest, next, err)
	}
}

// A message goes with the last of its jobs, whatever becomes of that.
func TestTopics_MessageGoesWithItsJobs(t *testing.T) {
	q := openQueue(t, &errand.Options{Retention: -1})
	all, ctx := topicsOf(t, q), t.Context()
	out, err := all.Publish(ctx, []door.Publication[errand.NewJob]{delivery("a", 2), delivery("none", 0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Message(ctx, "none"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("a message without jobs: %v", err)
	}
	for i, want := range []error{nil, errand.ErrNotFound} {
		if _, err := q.Cancel(ctx, out[0].Jobs[i].ID); err != nil {
			t.Fatal(err)
		}
		if _, err := all.Message(ctx, "a"); !errors.Is(err, want) {
			t.Errorf("the message after %d jobs were cancelled: %v, want %v", i+1, err, want)
		}
	}
}

func TestTopics_PublishTx(t *testing.T) {
	q := openQueue(t, nil)
	all, ctx := topicsOf(t, q), t.Context()
	oops := errors.New("oops")
	for _, fails := range []error{oops, nil} {
		err := q.Tx(ctx, func(tx *sql.Tx) error {
			if _, err := must(door.TopicsTx[errand.NewJob](q, tx)).Publish(ctx, []door.Publication[errand.NewJob]{delivery("a", 2)}); err != nil {
				return err
			}
			return fails
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		_, err = all.Message(ctx, "a")
		if errors.Is(err, errand.ErrNotFound) != (fails != nil) {
			t.Errorf("after a transaction that ended with %v: %v", fails, err)
		}
	}
	if _, err := door.TopicsTx[errand.NewJob](q, nil); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("without a transaction: %v", err)
	}
}

func TestTopics_Entries(t *testing.T) {
	q := openQueue(t, nil)
	all, ctx := topicsOf(t, q), t.Context()
	e := storage.Entry{Class: "endpoint", Name: "a", Family: "orders", Doc: []byte("1")}
	one, err := all.PutEntries(ctx, []storage.Entry{e})
	if err != nil || one <= 0 {
		t.Fatalf("PutEntries returned %d, %v", one, err)
	}
	if _, err := all.PutEntries(ctx, []storage.Entry{e}); !errors.Is(err, errand.ErrStale) {
		t.Errorf("an entry that is there: %v", err)
	}
	p := delivery("m", 1)
	p.Family, p.Revision = "orders", one-1
	if _, err := all.Publish(ctx, []door.Publication[errand.NewJob]{p}); !errors.Is(err, errand.ErrStale) {
		t.Errorf("a publication to a family at another revision: %v", err)
	}
	got, revision, err := all.Entries(ctx, "endpoint", "orders", "", 10)
	if err != nil || revision != one || len(got) != 1 || got[0].Revision != one || string(got[0].Doc) != "1" || got[0].CreatedAt.IsZero() {
		t.Fatalf("Entries returned %+v, %d, %v", got, revision, err)
	}
	p.Revision = revision
	if _, err := all.Publish(ctx, []door.Publication[errand.NewJob]{p}); err != nil {
		t.Error(err)
	}
	got[0].Delete = true
	two, err := all.PutEntries(ctx, got)
	if err != nil || two <= one {
		t.Errorf("the deletion returned %d, %v", two, err)
	}
	if _, err := all.Entry(ctx, "endpoint", "a"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("an entry that was deleted: %v", err)
	}
}

func TestTopics_BadInput(t *testing.T) {
	q := openQueue(t, nil)
	all, ctx := topicsOf(t, q), t.Context()
	with := func(f func(p *door.Publication[errand.NewJob])) error {
		p := delivery("a", 1)
		f(&p)
		_, err := all.Publish(ctx, []door.Publication[errand.NewJob]{delivery("ok", 1), p})
		return err
	}
	entry := func(f func(e *storage.Entry)) error {
		e := storage.Entry{Class: "endpoint", Name: "a", Doc: []byte("1")}
		f(&e)
		_, err := all.PutEntries(ctx, []storage.Entry{e})
		return err
	}
	long := strings.Repeat("x", 201)
	for field, err := range map[string]error{
		"publications[1].message.id":         with(func(p *door.Publication[errand.NewJob]) { p.Message.ID = "a/b" }),
		"publications[1].message.topic":      with(func(p *door.Publication[errand.NewJob]) { p.Message.Topic = long }),
		"publications[1].message.body":       with(func(p *door.Publication[errand.NewJob]) { p.Message.Body = make([]byte, 256<<10+1) }),
		"publications[1].message.attributes": with(func(p *door.Publication[errand.NewJob]) { p.Message.Attributes = make([]byte, 320<<10+1) }),
		"publications[1].message.cursor":     with(func(p *door.Publication[errand.NewJob]) { p.Message.Cursor = "\x00" }),
		"publications[1].message.keep_until": with(func(p *door.Publication[errand.NewJob]) { p.Message.KeepUntil = time.Unix(-1e9, 0) }),
		"publications[1].family":             with(func(p *door.Publication[errand.NewJob]) { p.Family = " " }),
		"publications[1].from":               with(func(p *door.Publication[errand.NewJob]) { p.From = "1" }),
		"publications[1].dedup":              with(func(p *door.Publication[errand.NewJob]) { p.Dedup, p.DedupFor = long, time.Minute }),
		"publications[1].dedup_for":          with(func(p *door.Publication[errand.NewJob]) { p.Dedup = "a" }),
		"publications[1].jobs[0].priority":   with(func(p *door.Publication[errand.NewJob]) { p.Jobs[0].Options = &errand.JobOptions{Priority: 101} }),
		"publications[1].jobs[0].tags[0]": with(func(p *door.Publication[errand.NewJob]) {
			p.Jobs[0].Options = &errand.JobOptions{Tags: []string{"message:b"}}
		}),
		"publications[1].jobs[0].unique.on_conflict.mode": with(func(p *door.Publication[errand.NewJob]) {
			p.Jobs[0].Options = &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace}}}
		}),
		"publications":        with(func(p *door.Publication[errand.NewJob]) { p.Jobs = make([]errand.NewJob, 10_001) }),
		"entries[0].class":    entry(func(e *storage.Entry) { e.Class = "Endpoint" }),
		"entries[0].name":     entry(func(e *storage.Entry) { e.Name = "" }),
		"entries[0].family":   entry(func(e *storage.Entry) { e.Family = long }),
		"entries[0].revision": entry(func(e *storage.Entry) { e.Revision = -1 }),
		"entries[0].doc":      entry(func(e *storage.Entry) { e.Doc = make([]byte, 64<<10+1) }),
	} {
		var fault *errand.FieldError
		if !errors.As(err, &fault) || fault.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := all.Message(ctx, "ok"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("something was written: %v", err)
	}
	if _, err := q.Enqueue(ctx, note{}, &errand.JobOptions{Tags: []string{"message:a"}}); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("a job with the tag of a message: %v", err)
	}
}

// A message that is kept for a time goes after it, also if its jobs are not kept and
// nothing else is to be purged.
func TestTopics_MessageIsPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Retention: -1})
		all, ctx := topicsOf(t, q), t.Context()
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
		run(t, w)
		p := delivery("a", 2)
		p.Message.KeepUntil = time.Now().Add(90 * time.Minute)
		if _, err := all.Publish(ctx, []door.Publication[errand.NewJob]{p}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{nil, errand.ErrNotFound} {
			time.Sleep(89 * time.Minute)
			if _, err := all.Message(ctx, "a"); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

// Jobs of publications go through the middleware, and events tell of them.
func TestTopics_JobsAreEnqueued(t *testing.T) {
	refuse := errors.New("refused")
	var told []string
	q := openQueue(t, &errand.Options{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
			errand.AfterEnqueue(ctx, func(e errand.Enqueued, err error) { told = append(told, fmt.Sprint(e.ID, err)) })
			if strings.Contains(string(job.Args.JSON), "bad") {
				return refuse
			}
			job.Headers = map[string]string{"by": "middleware"}
			return next(ctx, job)
		}
	}}})
	all, ctx := topicsOf(t, q), t.Context()
	s := subscribe(t, q, errand.EventFilter{}, 10)
	out, err := all.Publish(ctx, []door.Publication[errand.NewJob]{delivery("a", 2), delivery("a", 1), delivery("b", 1)})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(out[0].Jobs[0].ID, nil), fmt.Sprint(out[0].Jobs[1].ID, nil), fmt.Sprint(errand.ID{}, nil), fmt.Sprint(out[2].Jobs[0].ID, nil)}
	if !slices.Equal(told, want) {
		t.Errorf("told was %q, want %q: the job of a message that was there has no ID", told, want)
	}
	for i, id := range []errand.ID{out[0].Jobs[0].ID, out[0].Jobs[1].ID, out[2].Jobs[0].ID} {
		if e := <-s.Events(); e.Type != errand.EventEnqueued || e.ID != id {
			t.Errorf("event %d is %+v, want that of job %v", i, e, id)
		}
		if job, err := q.Job(ctx, id); err != nil || job.Headers["by"] != "middleware" {
			t.Errorf("job %d has the headers %v, %v", i, job.Headers, err)
		}
	}
	_, err = all.Publish(ctx, []door.Publication[errand.NewJob]{delivery("c", 1), delivery("bad", 2)})
	if !errors.Is(err, refuse) || !strings.Contains(err.Error(), "publications[1].jobs[0]") {
		t.Errorf("refused by the middleware: %v", err)
	}
	if _, err := all.Message(ctx, "c"); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("something was written: %v", err)
	}
}

func TestTopics_UnsupportedStore(t *testing.T) {
	q, err := errand.New(t.Context(), storagetest.NewMemory().OpenBare(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := door.Open[errand.NewJob](q); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("a store without messages: %v", err)
	}
	for _, queue := range []any{7, (*errand.Queue)(nil)} {
		if _, err := door.Open[errand.NewJob](queue); err == nil {
			t.Errorf("the door of %T was opened", queue)
		}
	}
	if _, err := door.Open[int](openQueue(t, nil)); err == nil {
		t.Error("a door for other jobs was opened")
	}
}

// The ID of a message of another topic is refused, since nobody would get the message.
func TestTopics_IDOfAnotherTopic(t *testing.T) {
	q := openQueue(t, nil)
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		t.Fatal(err)
	}
	of := func(id, topic string) door.Publication[errand.NewJob] {
		return door.Publication[errand.NewJob]{Message: storage.Message{ID: id, Topic: topic, Body: []byte("x"), KeepUntil: time.Now().Add(time.Hour)}}
	}
	if _, err := topics.Publish(t.Context(), []door.Publication[errand.NewJob]{of("a", "t")}); err != nil {
		t.Fatal(err)
	}
	_, err = topics.Publish(t.Context(), []door.Publication[errand.NewJob]{of("b", "u"), of("a", "u")})
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "publications[1].message.id" || !errors.Is(err, errand.ErrMessageID) {
		t.Errorf("%v", err)
	}
}
