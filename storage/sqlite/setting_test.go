package sqlite_test

import (
	"context"
	"testing"

	"github.com/errandq/errand/storage"
)

// What is set so already is not written, so that each start of a worker may say it.
func TestConfigure_Unchanged(t *testing.T) {
	ctx := context.Background()
	d := newDB(t, nil)
	s := d.open()
	lane, set := storage.Lane{Queue: "q"}, storage.Settings{"a": 1, "b": 2}
	configure := func(what string, set storage.Settings, begun int64) {
		t.Helper()
		before := s.Begun()
		if err := s.Configure(ctx, lane, set); err != nil {
			t.Fatal(err)
		}
		if n := s.Begun() - before; n != begun {
			t.Errorf("%s: %d transactions, want %d", what, n, begun)
		}
	}
	configure("new", set, 1)
	configure("the same", set, 0)
	configure("part of it", storage.Settings{"a": 1, "never": 0}, 0)
	configure("another", storage.Settings{"a": 3}, 1)
	if err := d.open().Configure(ctx, lane, set); err != nil {
		t.Fatal(err)
	}
	configure("after another process", set, 0)
	configure("after another process", storage.Settings{"a": 3}, 1)
}
