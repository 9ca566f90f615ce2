package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What attempts have kept of a job goes with the job, whichever way that is.
func TestKept_GoesWithItsJob(t *testing.T) {
	ctx := t.Context()
	said := &storage.Progress{Done: 1, Note: "page 1", At: t0}
	all := func(ids ...storage.State) storage.Selection {
		return storage.Selection{Filter: storage.Filter{States: ids}}
	}
	for name, c := range map[string]struct {
		silent   bool // it has no checkpoint
		settings storage.Settings
		job      storage.NewJob
		end      storage.Finish
		keep     time.Duration
		stays    bool // after its end
		goes     func(s storage.Store, id storage.ID) error
	}{
		"done":              {end: storage.Finish{Outcome: storage.OutcomeDone}},
		"done, with result": {end: storage.Finish{Outcome: storage.OutcomeDone, Result: []byte("ok")}},
		"done, with a result alone": {
			silent: true, end: storage.Finish{Outcome: storage.OutcomeDone, Result: []byte("ok")},
		},
		"cancelled, with progress alone": {
			silent: true, end: storage.Finish{Outcome: storage.OutcomeCancelled, Progress: said},
		},
		"cancelled while it waits": {
			end: storage.Finish{Outcome: storage.OutcomeRetry}, stays: true,
			goes: func(s storage.Store, id storage.ID) error {
				_, err := s.Cancel(ctx, t0, id, storage.Retention{})
				return err
			},
		},
		"expired": {
			job: storage.NewJob{StartWithin: time.Second, OnExpire: storage.Expired}, end: storage.Finish{Outcome: storage.OutcomeReturned}, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				_, err := s.Exchange(ctx, t0.Add(time.Minute), storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")})
				return err
			},
		},
		"purged": {
			end: storage.Finish{Outcome: storage.OutcomeDone, Result: []byte("ok")}, keep: time.Minute, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				_, _, err := s.PurgeFinished(ctx, t0.Add(time.Minute))
				return err
			},
		},
		"done and deleted": {
			end: storage.Finish{Outcome: storage.OutcomeDone}, keep: time.Minute, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				_, err := s.Delete(ctx, all(storage.Done))
				return err
			},
		},
		"dead and deleted": {
			end: storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Progress: said}, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				_, err := s.Delete(ctx, all(storage.Dead))
				return err
			},
		},
		"a dead one is evicted": {
			settings: storage.Settings{storage.SettingMaxDead: 1, storage.SettingWhenDeadFull: int64(storage.EvictDead)},
			end:      storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")}); err != nil {
					return err
				}
				_, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{{
					Lease: lease(t, s, 1, "a")[0].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent,
				}}})
				return err
			},
		},
		"one that waits is evicted": {
			settings: storage.Settings{storage.SettingMaxJobs: 1, storage.SettingWhenFull: int64(storage.EvictOldest)},
			end:      storage.Finish{Outcome: storage.OutcomeReturned}, stays: true,
			goes: func(s storage.Store, _ storage.ID) error {
				_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			kept := func(when string, want int64) {
				t.Helper()
				if n := d.number("SELECT COUNT(*) FROM errand_kept"); n != want {
					t.Errorf("%s: %d rows, want %d", when, n, want)
				}
			}
			if c.settings != nil {
				if err := s.Configure(ctx, storage.Lane{Queue: "default"}, c.settings); err != nil {
					t.Fatal(err)
				}
			}
			c.job.Queue, c.job.Kind, c.job.Args = "default", "a", []byte("{}")
			added, err := s.Enqueue(ctx, t0, []storage.NewJob{c.job})
			if err != nil {
				t.Fatal(err)
			}
			c.end.Lease = lease(t, s, 1, "a")[0].Lease
			if !c.silent {
				if _, err := s.Checkpoint(ctx, storage.Checkpoint{Lease: c.end.Lease, Data: []byte("page 1"), Progress: said}); err != nil {
					t.Fatal(err)
				}
				kept("after a checkpoint", 1)
			}
			if _, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{c.end}, Retention: storage.Retention{Default: c.keep}}); err != nil {
				t.Fatal(err)
			}
			if c.stays {
				kept("before it goes", 1)
				if err := c.goes(s, added[0].ID); err != nil {
					t.Fatal(err)
				}
			}
			kept("once it is gone", 0)
			if _, err := s.Job(ctx, added[0].ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("the job: %v, want ErrNotFound", err)
			}
			d.Invariants(t)
		})
	}
}

// What a transaction of the application has kept goes with the job, also if it was the last to
// know of it, and nothing is left of one that was rolled back.
func TestKept_Tx(t *testing.T) {
	ctx, declined := t.Context(), errors.New("declined")
	app, s, d := appStore(t, nil)
	for way, in := range inAppTx(ctx, app, s) {
		for _, commits := range []bool{true, false} {
			for _, endsInside := range []bool{true, false} {
				enqueue(t, s, "a", 1)
				l := lease(t, s, 1, "a")[0]
				err := in(func(tx *sql.Tx) error {
					if r, err := s.CheckpointTx(ctx, tx, storage.Checkpoint{Lease: l.Lease, Data: []byte("page 1")}); err != nil || r != storage.Applied {
						t.Errorf("%s: %d, %v", way, r, err)
					}
					if endsInside {
						end := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone, Result: []byte("ok")}
						if r, _, err := s.FinishTx(ctx, tx, t0, []storage.Finish{end}, storage.Retention{}, nil); err != nil || r[0] != storage.Applied {
							t.Errorf("%s: %d, %v", way, r, err)
						}
					}
					if !commits {
						return declined
					}
					return nil
				})
				if commits && err != nil || !commits && !errors.Is(err, declined) {
					t.Fatalf("%s: %v", way, err)
				}
				want := int64(0)
				if commits && !endsInside {
					want = 1
				}
				if n := d.number("SELECT COUNT(*) FROM errand_kept"); n != want {
					t.Errorf("%s, commits: %t, ends: %t: %d rows, want %d", way, commits, endsInside, n, want)
				}
				if !commits || !endsInside {
					if r := finish(t, s, l)[0]; r != storage.Applied {
						t.Errorf("%s: finishing returned %d", way, r)
					}
				}
				if n := d.number("SELECT COUNT(*) FROM errand_kept"); n != 0 {
					t.Errorf("%s, commits: %t, ends: %t: %d rows are left", way, commits, endsInside, n)
				}
			}
		}
	}
}
