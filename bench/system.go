package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// system is a job queue under measurement, on a file of its own. To add one,
// write an adapter and list it in systems.
type system interface {
	// Enqueue adds one job, and returns when it is as durable as this system
	// makes it.
	Enqueue(ctx context.Context, j newJob) error
	// EnqueueMany adds jobs in one call and one transaction.
	EnqueueMany(ctx context.Context, jobs []newJob) error
	// Work hands jobs to handle, in up to n goroutines at a time, until ctx
	// ends; it returns when every outcome is in the file. A system that has a
	// better number for itself may ignore n.
	Work(ctx context.Context, n int, handle func(context.Context, *job) error) error
	// Left counts the jobs that are not finished, dead ones not included.
	Left(ctx context.Context) (int, error)
	// Durability says what an acknowledged job survives: the settings of the
	// file.
	Durability(ctx context.Context) (string, error)
	Close() error
}

// txEnqueuer is a system that enqueues in a transaction of the application,
// with one row of the application beside the job.
type txEnqueuer interface {
	EnqueueTx(ctx context.Context, j newJob, note string) error
}

// txFinisher is a system whose handlers can end their job in a transaction of the
// application.
type txFinisher interface {
	// WorkTx is Work with handlers that write a row of the application and end their job
	// in one transaction, and call done after its commit. Up to perCall jobs share a
	// transaction, in systems that pass many jobs to a handler.
	WorkTx(ctx context.Context, n, perCall int, note string, done func(*job)) error
}

// redriver is a system that puts back jobs that have exhausted their retries.
type redriver interface {
	// Redrive puts all of them back, and returns how many.
	Redrive(ctx context.Context) (int, error)
}

// holder is a system that can keep jobs of a kind from being started.
type holder interface {
	Hold(ctx context.Context, kind int) error
}

// evicter is a system that can evict jobs from a queue that is full.
type evicter interface {
	// KeepNewest has each new job evict the oldest one while n jobs wait.
	KeepNewest(ctx context.Context, n int) error
}

// mixer is a bare loop that has its own way of doing the mixed workload.
type mixer interface {
	// Mixed adds n jobs, never more than producers in one commit, and does
	// them meanwhile.
	Mixed(ctx context.Context, producers, n int, handle func(context.Context, *job) error) error
}

// setup is how a system is to be opened.
type setup struct {
	path string
	// keep has finished jobs kept for as long as the system does by default;
	// else they are deleted at once, by systems that can.
	keep bool
	// queues are those to work for; nil is the usual one.
	queues []string
	// retries is how often a failed job is tried again, without delay.
	retries int
	// relaxed is set if commits are not synced, checkpoints apart.
	relaxed bool
}

// entry is a system in the list.
type entry struct {
	name  string
	about string // how it is set up
	open  func(ctx context.Context, s setup) (system, error)
	// bare is set for loops over plain SQL. They are one caller, and have the
	// batches made for them that callers of a queue share.
	bare bool
	// peer is set for the queues of others.
	peer bool
	// extra is set for what is measured only if it is asked for by name.
	extra bool
	// unsynced is set for what acknowledges a commit before it is synced.
	unsynced bool
	// server is set for systems on a server, which have no file.
	server bool
}

var systems = []entry{
	{name: "errand", open: openErrand, about: "its defaults"},
	{name: "raw", bare: true, open: openRaw, about: "the tables of raw.sql, one connection with errand's pragmas"},
	{name: "backlite", peer: true, open: openBacklite, about: "v0.6.0, the DSN of its README, one connection, 1,024 workers"},
	{name: "river", peer: true, open: openRiver, about: "v0.51.2, WAL, one connection, the settings of its own benchmark"},
	{name: "floor", bare: true, open: openFloor, about: "the table of floor.sql, as raw"},
	{name: "raw-decode", bare: true, extra: true, open: openRawDecode, about: "as raw, and decodes the args of each job that it does"},
	{name: "goqite", peer: true, extra: true, open: openGoqite, about: "v0.4.0, the DSN of its README, one connection"},
}

// servers are systems on PostgreSQL, which has to be installed: they are measured only if
// they are asked for by name, and at what needs no file. There are none without the build tag
// postgres: what pgx needs would count for the memory of the others.
var servers []entry

func findSystem(name string) (entry, error) {
	all := allSystems()
	i := slices.IndexFunc(all, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, fmt.Errorf("bench: system %q: must be one of %s", name, strings.Join(namesOf(all), ", "))
	}
	return all[i], nil
}

// allSystems returns systems and servers.
func allSystems() []entry { return slices.Concat(systems, servers) }

func namesOf(all []entry) (names []string) {
	for _, e := range all {
		names = append(names, e.name)
	}
	return names
}

// durability returns what a connection does for a commit, by its pragmas.
func durability(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (string, error) {
	var mode string
	var level int
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return "", err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return "", err
	}
	if level < 0 || level > 3 {
		return "", fmt.Errorf("bench: synchronous %d: must be 0 to 3", level)
	}
	return strings.ToUpper(mode) + " " + [...]string{"OFF", "NORMAL", "FULL", "EXTRA"}[level], nil
}
