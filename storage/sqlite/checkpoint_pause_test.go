package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
)

// After a try to begin the log anew that a reader has kept from its end, writers go on for
// longer than they have waited: the next try comes after a pause that begins with the end of
// this one. So it is on a nearly full disk too.
func TestCheckpoint_PausesAfterAFailure(t *testing.T) {
	s := openTemp(t)
	ctx := t.Context()
	db, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for low, pause := range map[bool]time.Duration{false: restartPause, true: lowPause} {
		c := checkpointer{Store: &Store{}, db: newStatements(conn)} // whose marks nobody else sets
		c.marks.low.Store(low)
		err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error {
			var n int
			if err := tx.Get(&n, "SELECT count(*) FROM errand_job"); err != nil {
				return err
			}
			if _, err := s.Enqueue(context.WithoutCancel(ctx), time.Now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}}); err != nil {
				return err
			}
			begin := time.Now()
			if moved, err := c.restart(100, 0); err != nil || moved == 100 {
				t.Errorf("low %t: %d pages were moved beside a reader, %v", low, moved, err)
			}
			if next := c.again.Sub(begin); next < restartWait+pause {
				t.Errorf("low %t: the next try comes after %v, want the wait and a pause, %v", low, next, restartWait+pause)
			}
			c.again = begin.Add(time.Hour)
			if again, err := c.restart(100, 0); err != nil || again != 0 || c.pause != pause {
				t.Errorf("low %t: in the pause it was tried again: %d, %v", low, again, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
