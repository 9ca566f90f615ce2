package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// busyOnce is a store of which somebody begins to write while it is read.
type busyOnce struct {
	*sqlite.Store
	read bool
}

func (s *busyOnce) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	if !s.read {
		s.read = true
		return nil, storage.ErrBusy
	}
	return s.Store.Holds(ctx, now)
}

// A program that begins to write does not end a watch.
func TestWatch_begunMeanwhile(t *testing.T) {
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(t.Context(), &busyOnce{Store: file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var b bytes.Buffer
	watch := newTool(nil, &b, &b)
	if err := watch.watch(t.Context(), q, time.Millisecond, 2); err != nil || strings.Count(b.String(), "live: yes") != 2 {
		t.Errorf("%v: %s", err, b.String())
	}
}
