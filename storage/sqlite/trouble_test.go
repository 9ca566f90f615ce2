package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A Store knows its own errors again, and no others.
func TestStore_Trouble(t *testing.T) {
	open := func() *Store {
		s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), &Options{BusyTimeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s, other := open(), open()
	add := func() error {
		_, err := s.Enqueue(t.Context(), time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}})
		return err
	}
	var own, busy error
	type mark struct{}
	ctx := context.WithValue(t.Context(), mark{}, true)
	if err := s.Tx(ctx, func(any) error {
		own = add()
		done := make(chan struct{})
		go func() { defer close(done); busy = add() }()
		<-done
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	FreeSpace(t, 32<<20) // few, so that an error of the driver is taken for one of this disk
	full := s.Tx(t.Context(), func(tx any) error {
		_, err := tx.(*sql.Tx).Exec("PRAGMA max_page_count = 1; CREATE TABLE large (a); INSERT INTO large VALUES (zeroblob(10000000))")
		return err
	})
	FreeSpace(t, 100<<10)
	one := []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}
	adding := map[string]func(s *Store, tx any) error{
		"EnqueueTx": func(s *Store, tx any) error {
			_, err := s.EnqueueTx(t.Context(), tx, time.Now(), one)
			return err
		},
		"PublishMessagesTx": func(s *Store, tx any) error {
			_, err := s.PublishMessagesTx(t.Context(), tx, time.Now(), []storage.Publication{{Message: storage.Message{Topic: "t"}, Jobs: one}})
			return err
		},
		"PutEntriesTx": func(s *Store, tx any) error {
			_, err := s.PutEntriesTx(t.Context(), tx, time.Now(), []storage.Entry{{Class: "s", Name: "n", Doc: []byte("{}")}})
			return err
		},
	}
	for name, add := range adding {
		for _, gone := range []bool{false, true} {
			if gone {
				s.ballast.release()
			}
			var in error
			err := s.Tx(t.Context(), func(tx any) error { in = add(s, tx); return in })
			for _, err := range []error{in, err} {
				is, _ := s.Trouble(err)
				others, _ := other.Trouble(err)
				if !errors.Is(err, storage.ErrFull) || !is || others {
					t.Errorf("%s, with the ballast gone %t: %v is trouble of its store: %t, of another one: %t", name, gone, err, is, others)
				}
			}
			s.ballast.gone.Store(false)
		}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
		open bool
	}{
		"its own caller":  {own, false, false},
		"behind a Tx":     {busy, true, true},
		"wrapped":         {fmt.Errorf("save: %w", errors.Join(errors.New("no"), busy)), true, true},
		"full in a Tx":    {full, true, false},
		"of nobody":       {storage.ErrFull, false, false},
		"of the function": {s.Tx(t.Context(), func(any) error { return storage.ErrFull }), false, false},
		"none":            {nil, false, false},
	} {
		is, in := s.Trouble(c.err)
		if is != c.want || (in != nil) != c.open || in != nil && in.Value(mark{}) == nil {
			t.Errorf("%s: %v in %v, want %v: %v", name, is, in, c.want, c.err)
		}
		if is, _ := other.Trouble(c.err); is {
			t.Errorf("%s: another store takes it for its own: %v", name, c.err)
		}
	}
	if !errors.Is(full, storage.ErrFull) || !errors.Is(busy, storage.ErrBusy) || !errors.Is(own, storage.ErrBusy) {
		t.Errorf("the errors are %v, %v, %v", full, busy, own)
	}
}
