package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/storage"
)

// keptVerdict is a verdict that waits for its job.
type keptVerdict struct {
	keptDoc
	revision int64
}

// kept returns all verdicts that wait for their jobs.
func (r outRows) kept(ctx context.Context) (map[errand.ID]keptVerdict, error) {
	all := map[errand.ID]keptVerdict{}
	err := r.each(ctx, keptClass, func(e storage.Entry) error {
		id, err := errand.ParseID(e.Name)
		var v keptVerdict
		if err = errors.Join(err, json.Unmarshal(e.Doc, &v.keptDoc)); err != nil {
			return fmt.Errorf("%w: kept verdict %q: %w", errand.ErrCorrupt, e.Name, err)
		}
		v.revision = e.Revision
		all[id] = v
		return nil
	})
	return all, err
}

// applyKept ends a job on whose verdict there was no lease, and reports whether the job is to be sent.
func (s *stream) applyKept(ctx context.Context, p *parcel) (sends bool, err error) {
	f := s.of
	f.keeping.RLock()
	defer f.keeping.RUnlock()
	f.mu.Lock()
	v, ok := f.kept[p.ID]
	f.mu.Unlock()
	if !ok {
		return true, nil
	}
	ctx = context.WithoutCancel(ctx)
	drop := storage.Entry{Class: keptClass, Name: p.ID.String(), Revision: v.revision, Delete: true}
	if v.Outcome == ratchet.Refused {
		info, err := f.queue.Job(ctx, p.ID)
		if err != nil && !errors.Is(err, errand.ErrNotFound) {
			return false, err
		}
		if !buried(info, v.keptDoc) {
			if err := f.noteRefusal(ctx, p, v); err != nil {
				return false, err
			}
			pass := f.passesDead(ctx)
			if p.end(errRefused(v.Reason, pass)); !pass {
				s.turnBackBehind([]*parcel{p})
			}
			return false, nil
		}
		// It was dead since, and redriven.
		_, err = f.rows.PutEntries(ctx, []storage.Entry{drop})
		if err == nil || errors.Is(err, errand.ErrStale) {
			f.forgetKept(p.ID)
			return true, nil
		}
		return false, err
	}
	err = f.queue.Tx(ctx, func(tx *sql.Tx) error {
		topics, err := door.TopicsTx[errand.NewJob](f.queue, tx)
		if err != nil {
			return err
		}
		if _, err := topics.PutEntries(ctx, []storage.Entry{drop}); err != nil {
			return err
		}
		return p.CompleteTx(ctx, tx)
	})
	switch {
	case errors.Is(err, errand.ErrLeaseLost), errors.Is(err, errand.ErrCancelled), errors.Is(err, errand.ErrFinished):
		s.fail(p, door.ErrUntouched) // the verdict stays
		return false, nil
	case err != nil:
		return false, err
	}
	f.forgetKept(p.ID)
	p.end(nil)
	return false, nil
}

// noteRefusal writes in which attempt a job dies of a kept refusal.
func (f *forwarder) noteRefusal(ctx context.Context, p *parcel, v keptVerdict) (err error) {
	if v.Attempt > 0 {
		return nil
	}
	v.Attempt = p.Attempt
	v.revision, err = f.rows.PutEntries(ctx, []storage.Entry{{Class: keptClass, Name: p.ID.String(), Revision: v.revision, Doc: docOf(v.keptDoc)}})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[p.ID] = v
	return nil
}

func (f *forwarder) forgetKept(id errand.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.kept, id)
}

// buried reports whether a job has died of a refusal already.
func buried(info errand.JobInfo, v keptDoc) bool {
	return slices.ContainsFunc(info.History, func(h errand.Failure) bool {
		return h.Attempt >= v.Attempt && v.Attempt > 0 && strings.HasSuffix(h.Error, v.Reason)
	})
}
