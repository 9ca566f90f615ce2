package storagetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand/storage"
)

// Hasty is implemented by a DB that can open instances which wait for nobody. Without it cases of
// [storage.Troubled] are skipped.
type Hasty interface {
	// OpenHasty is Open for an instance whose calls return [storage.ErrBusy] after a moment if
	// they would have to wait for somebody else, in place of waiting for longer.
	OpenHasty() storage.Store
}

// hasty opens an instance that waits for nobody, or skips the case.
func (f *fixture) hasty() (storage.Store, storage.Troubled) {
	f.Helper()
	if _, ok := f.s.(storage.Troubled); !ok {
		f.skip("storage.Troubled")
	}
	h, ok := f.db.(Hasty)
	if !ok {
		f.skip("instances that wait for nobody")
	}
	s := h.OpenHasty()
	return s, s.(storage.Troubled)
}

// busy has a call of s fail that writes, beside the callers.
func (f *fixture) busy(s storage.Store) error {
	f.Helper()
	failed := make(chan error)
	go func() {
		_, err := s.Enqueue(f.ctx, f.now, times(1, newJob()))
		failed <- err
	}()
	err := <-failed
	if !errors.Is(err, storage.ErrBusy) {
		f.Fatalf("a call that would have to wait returned %v, want ErrBusy", err)
	}
	return err
}

// getsIn calls Tx of a store that waits for nobody, until the transaction has begun: what was
// refused before may still be giving back what it had waited for.
func (f *fixture) getsIn(ctx context.Context, s storage.Store, fn func() error) error {
	for {
		begun := false
		err := f.transacts(s).Tx(ctx, func(any) error { begun = true; return fn() })
		if begun || !errors.Is(err, storage.ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// knows checks what Trouble says of an error.
func (f *fixture) knows(what string, s storage.Troubled, err error, want bool, mark any) {
	f.Helper()
	is, open := s.Trouble(err)
	var got any
	if open != nil {
		got = open.Value(troubleMark{})
	}
	if is != want || (open != nil) != (mark != nil) || got != mark {
		f.Errorf("%s: Trouble returned %t, and the context of %v; want %t, of %v: %v", what, is, got, want, mark, err)
	}
}

type troubleMark struct{}

var troubleCases = []testCase{
	{"trouble", `Trouble reports whether err comes of an [ErrFull], [ErrBusy] or [ErrIO] that a call of this Store has returned as it could not use its database.
It does not of an error of another Store; of the ErrBusy of a call that would have waited for its own caller; of one of a call in a transaction that the application has begun; nor of an error of Backup or Compact, which need room elsewhere.
For an ErrBusy open is the ctx of the Tx of this Store that was open then, if one was, else nil.`, func(f *fixture) {
		s, known := f.hasty()
		other := f.s.(storage.Troubled)
		var behind, own, beside error
		f.must(f.transacts(f.s).Tx(f.ctx, func(any) error { behind = f.busy(s); return nil }))
		ctx := context.WithValue(f.ctx, troubleMark{}, "open")
		f.must(f.getsIn(ctx, s, func() error {
			_, own = s.Enqueue(f.ctx, f.now, times(1, newJob()))
			beside = f.busy(s)
			return nil
		}))
		f.counts()
		for name, wrap := range map[string]func(error) error{
			"alone":   func(err error) error { return err },
			"wrapped": func(err error) error { return fmt.Errorf("save: %w", errors.Join(errors.New("no"), err)) },
		} {
			f.knows(name+", behind another Store", known, wrap(behind), true, nil)
			f.knows(name+", behind a Tx of its own", known, wrap(beside), true, "open")
			f.knows(name+", of its own caller", known, wrap(own), false, nil)
			f.knows(name+", of another Store", other, wrap(behind), false, nil)
		}
		for _, err := range []error{storage.ErrBusy, storage.ErrFull, storage.ErrIO} {
			f.knows("of nobody", known, err, false, nil)
			f.knows("of the function of a Tx", known, f.getsIn(f.ctx, s, func() error { return err }), false, nil)
		}
		f.knows("none", known, nil, false, nil)
		f.must(f.transacts(f.s).Tx(f.ctx, func(any) error { behind = f.busy(s); return nil }))
		f.knows("after a Tx has ended", known, behind, true, nil)
	}},
}
