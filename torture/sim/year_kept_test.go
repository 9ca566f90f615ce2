//go:build !race

package sim

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// longest is the longest time for which anything is kept here.
const longest = 2 * day

// keeper is a device that uses all that keeps a time, and whose clock is wrong once a week.
type keeper struct {
	t      *testing.T
	dice   *rand.Rand
	path   string
	wall   wall
	queue  *errand.Queue
	hooks  *webhook.Webhooks
	topics *topic.Topics
}

// kept is the kind of its jobs.
type kept struct{ Fail, Die bool }

func (kept) Kind() string { return "kept" }

// A year with a clock that jumps each week, ahead by up to 70 years or back by up to ten, and is
// right again within a day. Some days later nothing is left of the week that was to be kept for a
// time, at most a day after that.
func TestYear_Kept(t *testing.T) {
	weeks := 2
	if os.Getenv(tortureEnv) == "1" || *yearDays >= 365 {
		weeks = 52
	}
	empty()                                            // outside of the bubble
	dir, err := os.MkdirTemp(tmpfs(t), "errand-year-") //nolint:usetesting // not on a disk, if that can be had
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{t: t, dice: rand.New(rand.NewPCG(1, 2)), path: filepath.Join(dir, "jobs.db")}
		if err := os.WriteFile(k.path, empty(), 0o600); err != nil {
			t.Fatal(err)
		}
		stop := k.boot()
		defer stop()
		for n := 0; n < weeks && !t.Failed(); n++ {
			k.week(n)
		}
	})
}

func (k *keeper) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) boot() (stop func()) {
	store, err := sqlite.Open(k.path, &sqlite.Options{SingleProcess: true, Ballast: -1, Logger: quiet})
	k.must(err)
	k.queue, err = errand.New(context.Background(), store, &errand.Options{
		Clock: k.wall.now, Logger: quiet, Retention: day,
		Queues: map[string]errand.QueueOptions{"slow": {Settings: errand.Settings{Starts: new(24), StartsPer: new(day)}}},
	})
	k.must(err)
	k.must(k.queue.Schedule(context.Background(), errand.Schedule{Name: "daily", Spec: "0 12 * * *", Args: kept{}}))
	k.hooks, err = webhook.New(k.queue, &webhook.Options{Logger: quiet, Keep: day})
	k.must(err)
	k.topics, err = topic.New(k.queue, k.hooks, &topic.Options{Logger: quiet})
	k.must(err)
	_, err = k.topics.Declare(context.Background(), topic.Topic{Name: "news", Keep: longest, Ordered: true})
	k.must(err)
	_, err = k.topics.Subscribe(context.Background(), topic.Subscription{Topic: "news", Kind: "news"})
	k.must(err)
	_, _, err = k.hooks.Create(context.Background(), webhook.Endpoint{ID: "shop", URL: "https://shop.example/in"}, webhook.Secret{})
	k.must(err)
	w := errand.NewWorker(k.queue, &errand.WorkerOptions{Queues: []string{"default", "slow"}})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[kept]) error {
		switch {
		case job.Args.Die:
			return errand.Permanent(errors.New("no"))
		case job.Args.Fail && job.Attempt < 3:
			return errors.Join(errors.New("not yet"), job.Checkpoint(ctx, job.Attempt))
		}
		return job.SetResult(job.Attempt)
	})
	errand.HandleRaw(w, "news", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
	ctx, cancel := context.WithCancel(engine.WithRand(context.Background(), k.dice.Float64))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		k.must(<-ended)
		k.must(k.queue.Close())
	}
}

// week is one in which the clock is wrong for a day.
func (k *keeper) week(n int) {
	k.use()
	time.Sleep(day)
	off := []time.Duration{
		time.Hour, day, 30 * day, 365 * day, 70 * 365 * day, -time.Hour, -day, -10 * 365 * day,
	}[k.dice.IntN(8)]
	k.wall.off.Store(int64(off))
	time.Sleep(clock.Patience + settled)
	k.use()
	time.Sleep(time.Duration(k.dice.Int64N(int64(12 * time.Hour))))
	k.use()
	k.wall.off.Store(0)
	time.Sleep(clock.Patience + settled)
	time.Sleep(longest + day)
	synctest.Wait()
	k.nothingLeft(n, off)
	k.deadGone(n, off)
	k.dedupEnded(n, off)
	time.Sleep(day)
}

// use uses all that keeps a time.
func (k *keeper) use() {
	ctx := context.Background()
	enqueue := func(args kept, o errand.JobOptions) {
		k.t.Helper()
		_, err := k.queue.Enqueue(ctx, args, &o)
		k.must(err)
	}
	enqueue(kept{}, errand.JobOptions{})
	enqueue(kept{Fail: true}, errand.JobOptions{})
	enqueue(kept{}, errand.JobOptions{Delay: time.Duration(k.dice.Int64N(int64(day)))})
	enqueue(kept{}, errand.JobOptions{Unique: &errand.Unique{Key: "k", For: longest}})
	enqueue(kept{}, errand.JobOptions{Queue: "nobody", StartWithin: day})
	enqueue(kept{Die: true}, errand.JobOptions{})
	for range 4 { // of which two wait for an hour or more
		enqueue(kept{}, errand.JobOptions{Queue: "slow"})
	}
	if k.dice.IntN(3) == 0 {
		enqueue(kept{}, errand.JobOptions{Queue: "bulk", Delay: longest})
		_, err := k.queue.StartBulk(ctx, errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Queue: "bulk"}})
		k.must(err)
	}
	k.must(k.queue.Hold(ctx, errand.Lane{Queue: "held"}, &errand.HoldOptions{Reason: "week", For: day}))
	_, err := k.topics.Publish(ctx, "news", topic.Message{Group: "g", DedupID: "d", Body: []byte("{}")})
	k.must(err)
	sent, err := k.hooks.Send(ctx, webhook.Message{Body: []byte("{}")}, "shop")
	k.must(err)
	_, err = k.queue.Cancel(ctx, sent.Jobs[0].ID)
	k.must(err)
	_, err = k.hooks.RotateSecret(ctx, "shop", webhook.Secret{}, day)
	k.must(err)
}

// deadGone purges the dead letters that are older than a day, which all of them are.
func (k *keeper) deadGone(n int, off time.Duration) {
	ctx := context.Background()
	_, err := k.queue.DeadLetters().Purge(ctx, errand.JobFilter{OlderThan: day})
	k.must(err)
	if left, err := k.queue.DeadLetters().List(ctx, errand.JobFilter{}, nil); err != nil || len(left.Jobs) > 0 {
		k.t.Errorf("week %d, with a clock that was off by %v: %d dead letters are younger than a day, %v", n, off, len(left.Jobs), err)
	}
}

// dedupEnded checks that a DedupID of the week is free again.
func (k *keeper) dedupEnded(n int, off time.Duration) {
	p, err := k.topics.Publish(context.Background(), "news", topic.Message{Group: "g", DedupID: "d", Body: []byte("{}")})
	if err != nil || p.Duplicate {
		k.t.Errorf("week %d, with a clock that was off by %v: a DedupID of three days ago still counts: %v", n, off, err)
	}
}

// nothingLeft checks that all that was to be kept for a time is gone.
func (k *keeper) nothingLeft(n int, off time.Duration) {
	db, err := sql.Open("sqlite", "file:"+k.path+"?mode=ro")
	k.must(err)
	defer db.Close()
	now := time.Now().Add(right).UnixMicro()
	for what, query := range map[string]string{
		"finished jobs": `SELECT count(*) FROM errand_finished JOIN errand_lane USING (lane) WHERE queue <> 'errand.bulk' AND ended_at NOT BETWEEN ?1 - 2 * 86400000000 AND ?1`, // of the schedule, some days' are kept,
		"results":       `SELECT count(*) FROM errand_kept WHERE ?1 > 0 AND job NOT IN (SELECT id FROM errand_finished)`,
		"throttles":     `SELECT count(*) FROM errand_bucket WHERE full > ?1`,
		"ticks":         `SELECT count(*) FROM errand_schedule WHERE next_tick > ?1 + 86400000000`,
		"live jobs":     `SELECT count(*) FROM errand_job WHERE ?1 > 0`,
		"messages":      `SELECT count(*) FROM errand_message WHERE ?1 > 0`,
		"keys":          `SELECT count(*) FROM errand_unique WHERE ?1 > 0`,
		"holds":         `SELECT count(*) FROM errand_hold WHERE until > ?1`,
		"latest times":  `SELECT count(*) FROM errand_meta WHERE clock > ?1`,
	} {
		var left int
		k.must(db.QueryRow(query, now).Scan(&left))
		if left > 0 {
			k.t.Errorf("week %d, with a clock that was off by %v: %d %s are left", n, off, left, what)
		}
	}
	if r, err := k.queue.Schedules().Get(context.Background(), "daily"); err != nil || now-r.LastTick.UnixMicro() > day.Microseconds() {
		k.t.Errorf("week %d, with a clock that was off by %v: the last tick was %v, %v", n, off, r.LastTick, err)
	}
	if s, err := k.hooks.Secrets(context.Background(), "shop"); err != nil || len(s) != 1 {
		k.t.Errorf("week %d, with a clock that was off by %v: %d secrets sign, %v", n, off, len(s), err)
	}
}
