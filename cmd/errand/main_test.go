package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/policy"
)

// In scripts the command is this program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "errand" { // as scripts call the program
		kit.HeedSignals()
	}
	testscript.Main(m, map[string]func(){"errand": main})
}

// The command as people use it: see testdata/script. Beside what testscript has,
// scripts have $SHELL_EXAMPLE, the folder of examples/shell, $SHELL_JOBS, the number of
// its jobs, and these commands:
//
//	fixture FILE    makes a file with jobs in all states, and sets $READY, $SCHEDULED,
//	                $RETRYING, $DONE and $DEAD to their IDs, and $EVIL to that of a
//	                dead one whose args and error are full of control characters
//	status N errand ARGS...         wants the exit status to be N
//	unchanged FILE errand ARGS...   wants success, and no file of the folder to change
//	cause VAR FILE TEXT             sets a variable to the ID of the cause with a text
//	live FILE       has this process open the file, and work, until the script ends
//	foreign FILE    makes the database of another program, as its death has left it: with
//	                a log, and no index of that
//	busy VAR FILE   as live, and one job runs all the while; sets a variable to its ID
//
//errand:shows commands of `errand work` | | they end at their timeout and with the worker, whatever signals they ignore; of the jobs of a shell script each ends in one place
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			shell, err := filepath.Abs(filepath.Join("..", "..", "examples", "shell"))
			env.Setenv("SHELL_EXAMPLE", shell)
			env.Setenv("SHELL_JOBS", cmp.Or(os.Getenv("ERRAND_SHELL_JOBS"), "200"))
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"fixture": func(ts *testscript.TestScript, _ bool, args []string) {
				ids, err := fixture(context.Background(), ts.MkAbs(args[0]))
				ts.Check(err)
				for name, id := range ids {
					ts.Setenv(name, id)
				}
			},
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				status := 0
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					var exit *exec.ExitError
					if !errors.As(err, &exit) {
						ts.Fatalf("%v", err)
					}
					status = exit.ExitCode()
				}
				if strconv.Itoa(status) != args[0] {
					ts.Fatalf("status %d, want %s", status, args[0])
				}
			},
			"unchanged": func(ts *testscript.TestScript, _ bool, args []string) {
				before := folder(ts, args[0])
				ts.Check(ts.Exec(args[1], args[2:]...))
				if after := folder(ts, args[0]); after != before {
					ts.Fatalf("files before\n%sand after\n%s", before, after)
				}
			},
			"cause": func(ts *testscript.TestScript, _ bool, args []string) {
				var groups struct {
					Causes []struct {
						ID   int64
						Text string
					}
				}
				ts.Check(ts.Exec("errand", "dead", "groups", args[1], "--json"))
				ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &groups))
				for _, c := range groups.Causes {
					if c.Text == args[2] {
						ts.Setenv(args[0], strconv.FormatInt(c.ID, 10))
						return
					}
				}
				ts.Fatalf("no cause %q", args[2])
			},
			"live": func(ts *testscript.TestScript, _ bool, args []string) {
				_, stop, err := live(ts.MkAbs(args[0]), false)
				ts.Check(err)
				ts.Defer(func() { ts.Check(stop()) })
			},
			"foreign": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(foreign(ts.MkAbs(args[0])))
			},
			"busy": func(ts *testscript.TestScript, _ bool, args []string) {
				id, stop, err := live(ts.MkAbs(args[1]), true)
				ts.Check(err)
				ts.Setenv(args[0], id)
				ts.Defer(func() { ts.Check(stop()) })
			},
		},
	})
}

// foreign makes the database of another program that has died.
func foreign(path string) (err error) {
	dir, err := os.MkdirTemp("", "errand-foreign-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Exec("PRAGMA journal_mode = WAL; CREATE TABLE app (x); INSERT INTO app VALUES (1)"); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, "app.db"+suffix))
		if err == nil {
			err = os.WriteFile(path+suffix, b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// folder returns what files are in the folder of a file, and how they are.
func folder(ts *testscript.TestScript, name string) (all string) {
	entries, err := os.ReadDir(filepath.Dir(ts.MkAbs(name)))
	ts.Check(err)
	for _, e := range entries {
		info, err := e.Info()
		ts.Check(err)
		all += fmt.Sprintln(e.Name(), info.Mode(), info.Size(), info.ModTime())
	}
	return all
}

// evil is text that must not reach a terminal as it is.
const evil = "\x1b[2J\x1b]0;title\a line\n\"two\" \u0085\u009b31m \u202eright\u202c <script>alert(1)</script>\x7f"

const kind = "send"

func raw(args string) queue.RawArgs { return queue.RawArgs{OfKind: kind, JSON: []byte(args)} }

// fixture makes a file with jobs of kind send in queue mail in all states, and a
// schedule. It returns their IDs by the names of variables.
func fixture(ctx context.Context, path string) (ids map[string]string, err error) {
	q, err := queue.Open(ctx, path, &queue.Options{
		SQLite: queue.SQLiteOptions{Durability: queue.Relaxed, Ballast: -1}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	return fill(ctx, q)
}

// fill adds the jobs of fixture, and works until they are in their states.
func fill(ctx context.Context, q *queue.Queue) (map[string]string, error) {
	ids := map[string]string{}
	add := func(name, args string, o queue.JobOptions) error {
		o.Queue = "mail"
		e, err := q.Enqueue(ctx, raw(args), &o)
		ids[name] = e.ID.String()
		return err
	}
	hour := policy.Policy{Retries: 3, MinDelay: time.Hour, MaxDelay: time.Hour}
	odd, err := json.Marshal(map[string]string{"verdict": "evil", "text": evil})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		add("DONE", `{"verdict":"done"}`, queue.JobOptions{}),
		add("DEAD", `{"verdict":"permanent"}`, queue.JobOptions{Headers: map[string]string{"trace": "a1"}, Group: "ada@example.org"}),
		add("EVIL", string(odd), queue.JobOptions{Headers: map[string]string{evil: evil}}),
		add("RETRYING", `{"verdict":"fail"}`, queue.JobOptions{Policy: hour}),
		add("SCHEDULED", `{"verdict":"done"}`, queue.JobOptions{Delay: time.Hour}),
		q.Schedule(ctx, queue.Schedule{Name: "nightly", Spec: "0 3 * * *", Args: raw(`{"all":true}`), Options: &queue.JobOptions{Queue: "mail"}}),
	)
	if err != nil {
		return nil, err
	}
	kit.Work(q, worker(q, "mail"), 4)
	return ids, add("READY", `{"verdict":"done"}`, queue.JobOptions{Priority: 5})
}

// worker handles jobs of kind send in a queue as their args say.
func worker(q *queue.Queue, name string) *queue.Worker {
	w := queue.NewWorker(q, &queue.WorkerOptions{Queues: []string{name}, Concurrency: 1})
	queue.HandleRaw(w, kind, func(_ context.Context, job *queue.Job[queue.RawArgs]) error {
		var args struct{ Verdict string }
		if err := json.Unmarshal(job.Args.JSON, &args); err != nil {
			return err
		}
		switch args.Verdict {
		case "permanent":
			return queue.Permanent(errors.New("no such address"))
		case "evil":
			return queue.Permanent(errors.New(evil))
		case "fail":
			return errors.New("timeout after 5 s")
		}
		return nil
	})
	return w
}

// live opens a file and works in it, on the queue default, until stop is called. With
// busy a job of kind wait runs from before it returns until then, and id is its ID.
func live(path string, busy bool) (id string, stop func() error, err error) {
	ctx := context.Background()
	q, err := queue.Open(ctx, path, &queue.Options{SQLite: queue.SQLiteOptions{Durability: queue.Relaxed}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", nil, err
	}
	w := worker(q, "default")
	begun, end := make(chan struct{}, 1), make(chan struct{})
	queue.HandleRaw(w, "wait", func(context.Context, *queue.Job[queue.RawArgs]) error {
		begun <- struct{}{}
		<-end
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	stop = func() error {
		close(end)
		return errors.Join(w.Shutdown(ctx), <-stopped, q.Close())
	}
	if !busy {
		return "", stop, nil
	}
	job, err := q.Enqueue(ctx, queue.RawArgs{OfKind: "wait", JSON: []byte("{}")}, nil)
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	<-begun
	return job.ID.String(), stop, nil
}

// Errors that are joined are lines of their own, once each; inside of another one they are one line.
func TestTextsOf(t *testing.T) {
	full, away := errors.New("errand: the disk is full"), errors.New("errand: open: it is away")
	for _, c := range []struct {
		err  error
		want []string
	}{
		{full, []string{"the disk is full"}},
		{errors.Join(full, away, full), []string{"the disk is full", "open: it is away"}},
		{errors.Join(errors.Join(full, full), fmt.Errorf("errand: line 1: %w", away)), []string{"the disk is full", "line 1: open: it is away"}},
		{fmt.Errorf("%w; jobs enqueued before: 3", errors.Join(full, full)), []string{"the disk is full; jobs enqueued before: 3"}},
		{fmt.Errorf("%w: %w", full, errors.Join(away, full)), []string{"the disk is full: open: it is away; the disk is full"}},
	} {
		if got := textsOf(c.err); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.err, got, c.want)
		}
	}
}
