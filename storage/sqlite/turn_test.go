package sqlite_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Who writes to the file without taking turns gets in while the queue is written
// to without a pause: through the pool that New was given, and from elsewhere.
func TestTurn_OthersWriteBesideUnbrokenWriting(t *testing.T) {
	d := newDB(t, nil)
	dsn := "file:" + d.path + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(1000)"
	app, other := appDB(t, dsn), appDB(t, dsn)
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(app, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(context.Background())
	over, wrote := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(over)
		jobs := slices.Repeat([]storage.NewJob{newJob("default", "a")}, 500)
		for ctx.Err() == nil {
			if _, err := s.Enqueue(context.Background(), t0, jobs); err != nil {
				t.Error(err)
			}
			select {
			case wrote <- struct{}{}:
			default:
			}
		}
	}()
	for i, db := range []*sql.DB{app, other} {
		for n := range 20 {
			for range 3 { // it is to come in the middle of the queue's writing, not on the heels of its own
				<-wrote
			}
			if _, err := db.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
				t.Errorf("pool %d: write %d: %v", i, n, err)
			}
		}
	}
	stop()
	<-over
}
