package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// mostGap is how much of the time between two endpoints that were reached counts as
	// time in which this machine had a network.
	mostGap = time.Hour
	// noteEvery is how often that time is written while an endpoint fails.
	noteEvery = 10 * time.Minute
	onlineKey = "online"
)

// failing knows which endpoints fail, and for how long. Only the time counts in which some
// endpoint was reached, which is the time of a clock that stands still while this machine
// is offline. The clock and the endpoints that fail are in the file; nothing is written
// while none does.
type failing struct {
	h *Webhooks

	mu       sync.Mutex
	clock    online
	loaded   bool
	revision int64               // of the clock's entry
	noted    time.Time           // the clock was written
	notedAt  time.Time           // its Last was this then
	known    map[string]*failure // by endpoint; nil: its last attempt went well
}

// online is the clock.
type online struct {
	Online time.Duration `json:"online"`
	Last   time.Time     `json:"last"` // an endpoint was reached
}

// failure is since when an endpoint fails.
type failure struct {
	Online   time.Duration `json:"online"` // on the clock
	Since    time.Time     `json:"since"`
	revision int64
}

func (f *failing) init(h *Webhooks) { f.h, f.known = h, map[string]*failure{} }

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
	now := f.h.now()
	f.clock.reached(now)
	was, err := f.load(ctx, id)
	if err != nil {
		return err
	}
	if was != nil {
		if err := f.drop(ctx, id, was); err != nil {
			return err
		}
	}
	if !f.any() {
		return nil
	}
	return f.noteSometimes(ctx, now)
}

// noteSometimes writes the clock if it has moved, and was not written for some time.
func (f *failing) noteSometimes(ctx context.Context, now time.Time) error {
	if f.clock.Last.Equal(f.notedAt) || now.Sub(f.noted) < noteEvery {
		return nil
	}
	return f.note(ctx, nil)
}

// any reports whether an endpoint is known to fail.
func (f *failing) any() bool {
	for _, was := range f.known {
		if was != nil {
			return true
		}
	}
	return false
}

// failed notes that an attempt did not go well, and returns how long the endpoint has
// failed.
func (f *failing) failed(ctx context.Context, id string) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.h.now()
	if gate := f.h.opts.Online; gate != nil {
		if open, _, _ := gate.State(); open {
			f.clock.reached(now)
		}
	}
	was, err := f.load(ctx, id)
	if err != nil {
		return 0, err
	}
	if most := f.h.opts.DisableAfter; was != nil && f.clock.Online-was.Online >= most && most > 0 {
		delete(f.known, id) // another process may have reached it meanwhile
		if was, err = f.load(ctx, id); err != nil {
			return 0, err
		}
	}
	if was != nil {
		return f.clock.Online - was.Online, f.noteSometimes(ctx, now)
	}
	if f.clock.Last.IsZero() {
		f.clock.Last = now
	}
	was = &failure{Online: f.clock.Online, Since: now}
	doc, err := json.Marshal(was)
	if err != nil {
		return 0, err
	}
	if err := f.note(ctx, &errand.Entry{Class: classFailing, Name: id, Doc: doc}); err != nil {
		return 0, err
	}
	return 0, nil
}

// load returns since when an endpoint fails, nil if its last attempt went well. It reads
// the file once for each endpoint.
func (f *failing) load(ctx context.Context, id string) (*failure, error) {
	if !f.loaded {
		entry, err := f.h.topics.Entry(ctx, classOnline, onlineKey)
		if err != nil && !errors.Is(err, errand.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			if err := f.take(&entry); err != nil {
				return nil, err
			}
		}
		f.loaded = true
	}
	if was, ok := f.known[id]; ok {
		return was, nil
	}
	entry, err := f.h.topics.Entry(ctx, classFailing, id)
	if errors.Is(err, errand.ErrNotFound) {
		f.known[id] = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f.known[id], err = failureOf(&entry)
	return f.known[id], err
}

// take moves the clock on to that of the file, if another process has moved it further.
func (f *failing) take(entry *errand.Entry) error {
	var o online
	if err := json.Unmarshal(entry.Doc, &o); err != nil {
		return fmt.Errorf("%w: entry %s: %w", errand.ErrCorrupt, entry.Class, err)
	}
	f.revision = entry.Revision
	mine := f.clock
	f.clock = o
	if mine.Last.After(o.Last) {
		f.clock.reached(mine.Last)
	}
	return nil
}

func failureOf(entry *errand.Entry) (*failure, error) {
	was := &failure{revision: entry.Revision}
	if err := json.Unmarshal(entry.Doc, was); err != nil {
		return nil, fmt.Errorf("%w: entry %s of %q: %w", errand.ErrCorrupt, entry.Class, entry.Name, err)
	}
	return was, nil
}

// note writes the clock, and with it another entry, that an endpoint fails. What another
// process has written meanwhile is read, and counts.
func (f *failing) note(ctx context.Context, begins *errand.Entry) error {
	doc, err := json.Marshal(f.clock)
	if err != nil {
		return err
	}
	entries := []errand.Entry{{Class: classOnline, Name: onlineKey, Revision: f.revision, Doc: doc}}
	if begins != nil {
		entries = append(entries, *begins)
	}
	revision, err := f.h.topics.PutEntries(ctx, entries)
	if errors.Is(err, errand.ErrStale) { // the next attempt finds what the other process wrote
		f.loaded, f.noted = false, time.Time{}
		if begins != nil {
			delete(f.known, begins.Name)
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.revision, f.noted, f.notedAt = revision, f.h.now(), f.clock.Last
	if begins != nil {
		begins.Revision = revision
		f.known[begins.Name], err = failureOf(begins)
	}
	return err
}

// drop notes that an endpoint does not fail any more.
func (f *failing) drop(ctx context.Context, id string, was *failure) error {
	_, err := f.h.topics.PutEntries(ctx, []errand.Entry{{Class: classFailing, Name: id, Revision: was.revision, Delete: true}})
	if err != nil && !errors.Is(err, errand.ErrStale) {
		return err
	}
	f.known[id] = nil
	if err != nil {
		delete(f.known, id)
	}
	return nil
}

// end is for an endpoint that is enabled again.
func (f *failing) end(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, id)
	was, err := f.load(ctx, id)
	if err != nil || was == nil {
		return err
	}
	return f.drop(ctx, id, was)
}

// forget is for an endpoint that was deleted.
func (f *failing) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, id)
}

// among returns which of some endpoints fail, by ID. They are sorted.
func (f *failing) among(ctx context.Context, endpoints []errand.Entry) (map[string]failure, error) {
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
			out[entry.Name] = *was
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
			out[entries[i].Name] = *was
		}
		if len(entries) < 1000 || entries[len(entries)-1].Name >= endpoints[len(endpoints)-1].Name {
			break
		}
		after = entries[len(entries)-1].Name
	}
	return out, nil
}
