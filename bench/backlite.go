package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/mikestefanello/backlite"
)

// backliteQueue is backlite as its README opens it, with modernc's driver and but
// for two settings that suit it better: one connection, since with several it
// meets SQLITE_BUSY, and more workers, since it waits for 100 ms whenever none is
// idle.
type backliteQueue struct {
	db     *sql.DB
	client *backlite.Client
	queue  *backliteProcessor
}

const backliteWorkers = 1024

var backlitePragmas = []string{"busy_timeout(5000)", "journal_mode(WAL)"}

func openBacklite(_ context.Context, s setup) (system, error) {
	db, err := s.open(backlitePragmas...)
	if err != nil {
		return nil, err
	}
	b := &backliteQueue{db: db, queue: &backliteProcessor{config: backlite.QueueConfig{Name: "work", MaxAttempts: s.retries + 1}}}
	if s.keep {
		b.queue.config.Retention = &backlite.Retention{Duration: 24 * time.Hour, Data: &backlite.RetainData{}}
	}
	b.client, err = backlite.NewClient(backlite.ClientConfig{
		DB: db, NumWorkers: backliteWorkers, ReleaseAfter: 10 * time.Minute, CleanupInterval: time.Hour,
	})
	if err == nil {
		b.client.Register(b.queue)
		err = b.client.Install()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return b, nil
}

// backliteTask is a payload as backlite takes it.
type backliteTask payload

func (backliteTask) Config() backlite.QueueConfig { return backlite.QueueConfig{Name: "work"} }

func (b *backliteQueue) add(ctx context.Context, jobs ...newJob) *backlite.TaskAddOp {
	tasks := make([]backlite.Task, len(jobs))
	for i := range jobs {
		tasks[i] = backliteTask(jobs[i].payload)
	}
	return b.client.Add(tasks...).Ctx(ctx)
}

func (b *backliteQueue) Enqueue(ctx context.Context, j newJob) error {
	_, err := b.add(ctx, j).Save()
	return err
}

func (b *backliteQueue) EnqueueMany(ctx context.Context, jobs []newJob) error {
	_, err := b.add(ctx, jobs...).Save()
	return err
}

func (b *backliteQueue) EnqueueTx(ctx context.Context, j newJob, note string) error {
	return inTx(ctx, b.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlOrder, note); err != nil {
			return err
		}
		_, err := b.add(ctx, j).Tx(tx).Save()
		return err
	})
}

// Work ignores n for the number that suits backlite best.
func (b *backliteQueue) Work(ctx context.Context, _ int, handle func(context.Context, *job) error) error {
	b.queue.set(handle)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	b.client.Start(run)
	<-ctx.Done()
	if !b.client.Stop(run) {
		return errors.New("bench: backlite did not stop")
	}
	return nil
}

func (b *backliteQueue) Left(ctx context.Context) (n int, err error) {
	err = b.db.QueryRowContext(ctx, `SELECT count(*) FROM backlite_tasks`).Scan(&n)
	return n, err
}

func (b *backliteQueue) Durability(ctx context.Context) (string, error) { return durability(ctx, b.db) }

func (b *backliteQueue) Close() error { return b.db.Close() }

// backliteProcessor is what backlite.NewQueue makes, with a configuration and a
// handler that are not known before it is registered. Backlite does not tell the
// number of the attempt, so it is always 1 and workloads that need it are not for
// backlite.
type backliteProcessor struct {
	config backlite.QueueConfig

	mu     sync.Mutex
	handle func(context.Context, *job) error
}

func (p *backliteProcessor) Config() *backlite.QueueConfig { return &p.config }

func (p *backliteProcessor) set(handle func(context.Context, *job) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle = handle
}

// Process implements [backlite.Queue].
func (p *backliteProcessor) Process(ctx context.Context, args []byte) error {
	j := job{Attempt: 1}
	if err := json.Unmarshal(args, &j.payload); err != nil {
		return err
	}
	p.mu.Lock()
	handle := p.handle
	p.mu.Unlock()
	return handle(ctx, &j)
}

// inTx runs f in a transaction of database/sql.
func inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
