package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

const (
	// mostGap is how much of the time between two endpoints that were reached counts as
	// time in which this machine had a network.
	mostGap = time.Hour
	// mostBetween is how much of that time counts between two failures of an endpoint: two
	// of them that are weeks apart say little about the weeks. It is more than the longest
	// delay of the default policy.
	mostBetween = 12 * time.Hour
	// noteEvery is how much of that time is counted until it is written, and how long what was
	// read of an endpoint is believed: other processes write too.
	noteEvery = 10 * time.Minute
	onlineKey = "online"
)

// failing knows which endpoints fail, and for how long. Only the time counts in which some
// endpoint was reached, which is the time of a clock that stands still while this machine
// is offline. The clock and the endpoints that fail are in the file; nothing is written
// while none does.
type failing struct {
	h    *Webhooks
	link link

	mu       sync.Mutex
	clock    online
	loaded   bool
	revision int64             // of the clock's entry
	noted    time.Time         // the clock was written
	notedAt  time.Time         // its Last was this then
	known    map[string]*state // by endpoint
	n        int               // of known, how many fail
}

// online is the clock.
type online struct {
	Online time.Duration `json:"online"`
	Last   time.Time     `json:"last"` // an endpoint was reached
}

// failure is how long an endpoint has failed.
type failure struct {
	Since   time.Time     `json:"since"`
	Counted time.Duration `json:"counted"` // on the clock
	Online  time.Duration `json:"online"`  // that of the clock, at its last failure
}

// state is what is known of an endpoint.
type state struct {
	failure
	fails    bool
	revision int64         // of the failure's entry
	written  time.Duration // its Counted
	read     time.Time     // or written
}

func (f *failing) init(h *Webhooks) { f.h, f.known = h, map[string]*state{} }

// reached moves the clock on.
func (o *online) reached(now time.Time) {
	if gap := now.Sub(o.Last); gap > 0 && !o.Last.IsZero() {
		o.Online += min(gap, mostGap)
	}
	o.Last = now
}

// succeeded notes that an attempt went well.
func (f *failing) succeeded(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock.reached(f.h.now())
	now := time.Now()
	s, err := f.load(ctx, id, now)
	if err == nil && s.fails {
		err = f.drop(ctx, id, s)
	}
	if err != nil || f.n == 0 || f.clock.Last.Equal(f.notedAt) || now.Sub(f.noted) < noteEvery {
		return err
	}
	return f.note(ctx, "", nil)
}

// failed notes that an attempt did not go well, and returns how long the endpoint has
// failed.
func (f *failing) failed(ctx context.Context, id string) (time.Duration, error) {
	open := f.link.isOpen(f.h.opts.Online, f.h.opts.Logger) // without the lock: who was reached needs it
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.h.now()
	if open {
		f.clock.reached(now)
	}
	s, err := f.load(ctx, id, time.Now())
	if err != nil {
		return 0, err
	}
	if f.clock.Last.IsZero() {
		f.clock.Last = now
	}
	if !s.fails {
		return 0, f.note(ctx, id, &failure{Since: now, Online: f.clock.Online})
	}
	s.Counted += max(0, min(f.clock.Online-s.Online, mostBetween))
	s.Online = f.clock.Online
	most := f.h.opts.DisableAfter
	if s.Counted-s.written < noteEvery && (most <= 0 || s.Counted < most) {
		return s.Counted, nil
	}
	was := s.failure
	if err := f.note(ctx, id, &was); err != nil {
		return 0, err
	}
	return f.known[id].Counted, nil
}

// load returns what is known of an endpoint. What is not known, or was read too long ago,
// is read from the file.
func (f *failing) load(ctx context.Context, id string, now time.Time) (*state, error) {
	if !f.loaded {
		if err := f.loadClock(ctx); err != nil {
			return nil, err
		}
	}
	was := f.known[id]
	if was != nil && now.Sub(was.read) < noteEvery {
		return was, nil
	}
	s := &state{read: now}
	entry, err := f.h.topics.Entry(ctx, classFailing, id)
	switch {
	case err == nil:
		if s.failure, err = failureOf(&entry); err != nil {
			return nil, err
		}
		s.fails, s.revision, s.written = true, entry.Revision, s.Counted
		if was != nil && was.fails && was.revision == s.revision { // with what was counted since
			s.failure = was.failure
		}
	case !errors.Is(err, errand.ErrNotFound):
		return nil, err
	}
	f.know(id, s)
	return s, nil
}

// know sets what is known of an endpoint; nil: nothing.
func (f *failing) know(id string, s *state) {
	if was := f.known[id]; was != nil && was.fails {
		f.n--
	}
	if s == nil {
		delete(f.known, id)
		return
	}
	if s.fails {
		f.n++
	}
	f.known[id] = s
}

// loadClock moves the clock on to that of the file, if another process has moved it
// further.
func (f *failing) loadClock(ctx context.Context) error {
	entry, err := f.h.topics.Entry(ctx, classOnline, onlineKey)
	if errors.Is(err, errand.ErrNotFound) {
		f.loaded, f.revision = true, 0
		return nil
	}
	if err != nil {
		return err
	}
	var o online
	if err := json.Unmarshal(entry.Doc, &o); err != nil {
		return fmt.Errorf("%w: entry %s: %w", errand.ErrCorrupt, entry.Class, err)
	}
	mine := f.clock
	f.clock, f.revision, f.loaded = o, entry.Revision, true
	if mine.Last.After(o.Last) {
		f.clock.reached(mine.Last)
	}
	return nil
}

func failureOf(entry *storage.Entry) (was failure, err error) {
	if err := json.Unmarshal(entry.Doc, &was); err != nil {
		return was, fmt.Errorf("%w: entry %s of %q: %w", errand.ErrCorrupt, entry.Class, entry.Name, err)
	}
	return was, nil
}

// mostNotes is how often a write is tried that another process was ahead of.
const mostNotes = 5

// note writes the clock, and with it that an endpoint fails. What another process has
// written meanwhile counts: that the endpoint was reached goes before that it fails still.
func (f *failing) note(ctx context.Context, id string, of *failure) error {
	for range mostNotes {
		entries, err := f.entries(id, of)
		if err != nil {
			return err
		}
		revision, err := f.h.topics.PutEntries(ctx, entries)
		if err == nil {
			f.revision, f.noted, f.notedAt = revision, time.Now(), f.clock.Last
			if of != nil {
				f.know(id, &state{failure: *of, fails: true, revision: revision, written: of.Counted, read: time.Now()})
			}
			return nil
		}
		if !errors.Is(err, errand.ErrStale) {
			return err
		}
		if err := f.loadClock(ctx); err != nil || of == nil {
			return err
		}
		failed := f.known[id] != nil && f.known[id].fails
		f.know(id, nil)
		s, err := f.load(ctx, id, time.Now())
		if err != nil {
			return err
		}
		switch {
		case s.fails:
			of = &failure{Since: s.Since, Counted: max(s.Counted, of.Counted), Online: f.clock.Online}
		case failed: // it was reached meanwhile, and begins to fail anew
			of = &failure{Since: f.h.now(), Online: f.clock.Online}
		}
	}
	return nil
}

// entries returns the entries of the clock and of an endpoint that fails.
func (f *failing) entries(id string, of *failure) ([]storage.Entry, error) {
	doc, err := json.Marshal(f.clock)
	if err != nil {
		return nil, err
	}
	entries := []storage.Entry{{Class: classOnline, Name: onlineKey, Revision: f.revision, Doc: doc}}
	if of == nil {
		return entries, nil
	}
	e := storage.Entry{Class: classFailing, Name: id}
	if s := f.known[id]; s != nil {
		e.Revision = s.revision
	}
	e.Doc, err = json.Marshal(of)
	return append(entries, e), err
}

// drop notes that an endpoint does not fail any more.
func (f *failing) drop(ctx context.Context, id string, was *state) error {
	_, err := f.h.topics.PutEntries(ctx, []storage.Entry{{Class: classFailing, Name: id, Revision: was.revision, Delete: true}})
	switch {
	case err == nil:
		f.know(id, &state{read: time.Now()})
	case errors.Is(err, errand.ErrStale): // the next attempt finds what the other process wrote
		f.know(id, nil)
	default:
		return err
	}
	return nil
}

// end is for an endpoint that is enabled again.
func (f *failing) end(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.know(id, nil)
	s, err := f.load(ctx, id, time.Now())
	if err != nil || !s.fails {
		return err
	}
	return f.drop(ctx, id, s)
}

// forget is for an endpoint that was deleted.
func (f *failing) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.know(id, nil)
}

// among returns which of some endpoints fail, by ID. They are sorted.
func (f *failing) among(ctx context.Context, endpoints []storage.Entry) (map[string]failure, error) {
	out := map[string]failure{}
	if len(endpoints) == 1 {
		entry, err := f.h.topics.Entry(ctx, classFailing, endpoints[0].Name)
		if errors.Is(err, errand.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		was, err := failureOf(&entry)
		if err == nil {
			out[entry.Name] = was
		}
		return out, err
	}
	for after := ""; len(endpoints) > 0; {
		entries, _, err := f.h.topics.Entries(ctx, classFailing, "", after, 1000)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			was, err := failureOf(&entries[i])
			if err != nil {
				return nil, err
			}
			out[entries[i].Name] = was
		}
		if len(entries) < 1000 || entries[len(entries)-1].Name >= endpoints[len(endpoints)-1].Name {
			break
		}
		after = entries[len(entries)-1].Name
	}
	return out, nil
}
