package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

// However many lists are under way, what a worker calls does not wait for them.
//
//errand:shows many lists at a time | | workers read through connections of their own
func TestReading_ListsKeepNoWorkerWaiting(t *testing.T) {
	s := openTemp(t)
	defer s.Notify(func(storage.Event) {})()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	now := time.Now()
	if _, err := s.Enqueue(ctx, now, []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	res, err := s.Exchange(ctx, now, storage.Exchange{
		LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}},
	})
	if err != nil || len(res.Leased) != 1 {
		t.Fatalf("leased %d, %v", len(res.Leased), err)
	}
	begun, release := make(chan struct{}, 40), make(chan struct{})
	var lists sync.WaitGroup
	for range cap(begun) {
		lists.Go(func() {
			err := s.reading(context.Background(), s.read, func(tx *sqlx.Tx) error {
				begun <- struct{}{}
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range maxReaders {
		<-begun
	}
	for name, call := range map[string]func() error{
		"heartbeat": func() error {
			_, err := s.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{res.Leased[0].Lease}})
			return err
		},
		"Reclaim": func() error {
			_, err := s.Reclaim(ctx, now, 0, time.Minute, 1)
			return err
		},
		"Counts": func() error {
			_, err := s.Counts(ctx)
			return err
		},
		"Holds": func() error {
			_, err := s.Holds(ctx, now)
			return err
		},
		"Clock": func() error {
			_, _, err := s.Clock(ctx)
			return err
		},
		"Schedules": func() error {
			_, err := s.Schedules(ctx)
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s beside lists: %v", name, err)
		}
	}
	close(release)
	lists.Wait()
}

// What is read for each delivery is prepared once, whoever asks first, and finds what was
// written last.
func TestReadOne_PreparesOnce(t *testing.T) {
	s := openTemp(t)
	ctx := t.Context()
	revision := int64(0)
	for _, doc := range []string{`{"v":1}`, `{"v":2}`} {
		var err error
		if revision, err = s.PutEntries(ctx, time.Now(), []storage.Entry{{Class: "c", Name: "n", Revision: revision, Doc: []byte(doc)}}); err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for range 4 * maxReaders {
			readers.Go(func() {
				if e, err := s.Entry(ctx, "c", "n"); string(e.Doc) != doc || err != nil {
					t.Errorf("read %s, %v; want %s", e.Doc, err, doc)
				}
			})
		}
		readers.Wait()
	}
	n := 0
	s.texts.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d statements are kept, want 1", n)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Entry(over, "c", "n"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Entry(ctx, "c", "n"); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
