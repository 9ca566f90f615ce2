package storagetest

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

// topics returns s as what keeps messages and entries, or skips the case.
func (f *fixture) topics(s storage.Store) storage.Topics {
	f.Helper()
	t, ok := s.(storage.Topics)
	if !ok {
		f.skip("storage.Topics")
	}
	return t
}

// putEntries is one PutEntries, which must go well.
func (f *fixture) putEntries(entries ...storage.Entry) int64 {
	f.Helper()
	revision, err := f.topics(f.s).PutEntries(f.ctx, f.now, entries)
	f.must(err)
	if revision <= 0 {
		f.Errorf("PutEntries returned the revision %d, want a positive one", revision)
	}
	return revision
}

// stale checks that PutEntries refuses entries.
func (f *fixture) stale(what string, entries ...storage.Entry) {
	f.Helper()
	if r, err := f.topics(f.s).PutEntries(f.ctx, f.now, entries); !errors.Is(err, storage.ErrStale) || r != 0 {
		f.Errorf("%s: PutEntries returned %d, %v; want ErrStale", what, r, err)
	}
}

// hasEntry checks what Entry returns, on all instances; a Revision of zero means that it is not there.
func (f *fixture) hasEntry(want storage.Entry) {
	f.Helper()
	for _, s := range []storage.Store{f.s, f.db.Open()} {
		got, err := f.topics(s).Entry(f.ctx, want.Class, want.Name)
		if want.Revision == 0 {
			if !errors.Is(err, storage.ErrNotFound) {
				f.Errorf("Entry(%q, %q) returned %+v, %v; want ErrNotFound", want.Class, want.Name, got, err)
			}
			continue
		}
		f.must(err)
		f.sameEntry(got, want)
	}
}

func (f *fixture) sameEntry(got, want storage.Entry) {
	f.Helper()
	for _, e := range []*storage.Entry{&got, &want} {
		e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	}
	if !reflect.DeepEqual(got, want) {
		f.Errorf("the entry is %s, want %s", show(got), show(want))
	}
}

// entries checks a list, by name, and the revision of the family.
func (f *fixture) entries(class, family, after string, limit int, revision int64, want ...string) {
	f.Helper()
	got, r, err := f.topics(f.s).Entries(f.ctx, class, family, after, limit)
	f.must(err)
	var names []string
	for _, e := range got {
		names = append(names, e.Name)
		if e.Class != class || family != "" && e.Family != family || e.Revision == 0 || e.Doc == nil {
			f.Errorf("Entries(%q, %q) has %+v", class, family, e)
		}
	}
	if !reflect.DeepEqual(names, want) || r != revision {
		f.Errorf("Entries(%q, %q, %q, %d) returned %q at %d, want %q at %d", class, family, after, limit, names, r, want, revision)
	}
}

func newEntry(name, family, doc string) storage.Entry {
	return storage.Entry{Class: "c", Name: name, Family: family, Doc: []byte(doc)}
}

// at is e with a revision, to be written over.
func at(e storage.Entry, revision int64) storage.Entry {
	e.Revision = revision
	return e
}

func deleted(e storage.Entry) storage.Entry {
	e.Delete = true
	return e
}

// endedCtx returns a context that has ended.
func (f *fixture) endedCtx() context.Context {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	return ctx
}

// topicCalls returns a call of each method of Topics but that in a transaction.
func (f *fixture) topicCalls() map[string]func(ctx context.Context) error {
	t := f.topics(f.s)
	return map[string]func(ctx context.Context) error{
		"PutEntries": func(ctx context.Context) error {
			_, err := t.PutEntries(ctx, f.now, []storage.Entry{newEntry("closed", "", "")})
			return err
		},
		"PublishMessages": func(ctx context.Context) error {
			_, err := t.PublishMessages(ctx, f.now, []storage.Publication{published("closed", newJob())})
			return err
		},
		"Entry":   func(ctx context.Context) error { _, err := t.Entry(ctx, "c", "a"); return err },
		"Entries": func(ctx context.Context) error { _, _, err := t.Entries(ctx, "c", "", "", 1); return err },
		"Message": func(ctx context.Context) error { _, err := t.Message(ctx, "a"); return err },
		"MessageWith": func(ctx context.Context) error {
			_, _, err := t.MessageWith(ctx, "a", storage.EntryName{Class: "c", Name: "a"})
			return err
		},
		"Messages": func(ctx context.Context) error { _, _, err := t.Messages(ctx, "t", time.Time{}, "", 1); return err },
	}
}

// published is a publication with jobs.
func published(id string, jobs ...storage.NewJob) storage.Publication {
	return storage.Publication{Message: storage.Message{ID: id, Topic: "t", Body: []byte("body of " + id)}, Jobs: jobs}
}

// publish is one PublishMessages, which must go well, with as many answers as publications.
func (f *fixture) publishes(publications ...storage.Publication) []storage.PublishResult {
	f.Helper()
	out, err := f.topics(f.s).PublishMessages(f.ctx, f.now, publications)
	f.must(err)
	if len(out) != len(publications) {
		f.Fatalf("PublishMessages of %d publications returned %d answers", len(publications), len(out))
	}
	for i, r := range out {
		p := &publications[i]
		switch {
		case r.Duplicate && (len(r.Jobs) > 0 || r.ID == ""):
			f.Errorf("the answer to a duplicate is %+v", r)
		case !r.Duplicate && (r.ID != p.Message.ID || len(r.Jobs) != len(p.Jobs)):
			f.Errorf("the answer to %q with %d jobs is %+v", p.Message.ID, len(p.Jobs), r)
		}
	}
	return out
}

// refuses checks that PublishMessages returns an error, and writes nothing.
func (f *fixture) refuses(what string, want error, publications ...storage.Publication) {
	f.Helper()
	before, err := f.s.Counts(f.ctx)
	f.must(err)
	out, err := f.topics(f.s).PublishMessages(f.ctx, f.now, publications)
	if !errors.Is(err, want) || out != nil {
		f.Errorf("%s: PublishMessages returned %+v, %v; want %v", what, out, err, want)
	}
	f.counts(before...)
}

// messageIs checks what Message returns.
func (f *fixture) messageIs(want storage.Message) {
	f.Helper()
	for _, s := range []storage.Store{f.s, f.db.Open()} {
		got, err := f.topics(s).Message(f.ctx, want.ID)
		f.must(err)
		if got, want := plainMessage(got), plainMessage(want); !reflect.DeepEqual(got, want) || got.Body == nil {
			f.Errorf("the message is %s, want %s", show(got), show(want))
		}
	}
}

func plainMessage(m storage.Message) storage.Message {
	m.PublishedAt, m.KeepUntil = m.PublishedAt.UTC(), m.KeepUntil.UTC()
	return m
}

// there checks which messages there are.
func (f *fixture) there(there bool, ids ...string) {
	f.Helper()
	for _, id := range ids {
		_, err := f.topics(f.s).Message(f.ctx, id)
		if there && err != nil || !there && !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("Message(%q): %v, want it there: %v", id, err, there)
		}
	}
}

// purge is PurgeFinished until it is done. It returns when to call it again.
func (f *fixture) purge() (next time.Time) {
	f.Helper()
	for range 1000 {
		_, again, err := f.s.PurgeFinished(f.ctx, f.now)
		f.must(err)
		if !again.Equal(f.now) {
			return again
		}
	}
	f.Fatalf("PurgeFinished has no end")
	return next
}
