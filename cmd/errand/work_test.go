package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// needShell skips a test where commands of a shell do not run.
func needShell(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err) // Windows
	}
}

// onFile opens a queue of a test for one use.
func onFile(t *testing.T, file string, use func(q *queue.Queue)) {
	t.Helper()
	q, err := queue.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	use(q)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// drain runs the jobs of a file until it is empty. Each job brings its command in a header.
func drain(t *testing.T, file string, flags ...string) (status int, r left, errs string) {
	t.Helper()
	args := append([]string{"work", file, "--kind", "run", "--until-empty", "--json", "--kill-after", "1s"}, flags...)
	status, out, errs := errand(t, "", append(args, "--", "sh", "-c", `eval "$ERRAND_HEADER_RUN"`)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("errand %q: status %d, %v: %s%s", args, status, err, out, errs)
	}
	return status, r, errs
}

// verdict is a command and what is to become of its job.
type verdict struct {
	name, run string
	state     queue.State
	reason    queue.Reason
	failed    string // what the error must match
	// attempt, retry and snoozes are the counters of the job.
	attempt, retry, snoozes int
}

// What the end of a command means for its job.
//
//errand:shows commands of `errand work` | | the exit status of a command, and the file that it writes, are the verdict; a worker that is not able to run it holds the lane, and no job loses anything
func TestWork_verdicts(t *testing.T) {
	verdicts(t, []verdict{
		{"0", `exit 0`, queue.Done, "", `^$`, 1, 0, 0},
		{"noise", `seq 20000; exit 0`, queue.Done, "", `^$`, 1, 0, 0},
		{"args not read", `exec <&-; exit 0`, queue.Done, "", `^$`, 1, 0, 0},
		{"65", `echo no such customer >&2; exit 65`, queue.Dead, queue.ReasonPermanent, `^exit status 65: no such customer$`, 1, 0, 0},
		{"1", `echo first >&2; echo second >&2; exit 1`, queue.Dead, queue.ReasonExhausted, `^exit status 1: first\nsecond$`, 2, 1, 0},
		{"75", `exit 75`, queue.Dead, queue.ReasonExhausted, `^exit status 75$`, 2, 1, 0},
		{"64, then well", `[ $ERRAND_ATTEMPT -gt 1 ] || exit 64`, queue.Done, "", `^$`, 2, 1, 0},
		{"69, then well", `[ $ERRAND_ATTEMPT -gt 1 ] || exit 69`, queue.Done, "", `^$`, 2, 0, 0},
		{"signal", `kill -SEGV $$`, queue.Dead, queue.ReasonExhausted, `^signal: segmentation fault`, 2, 1, 0},
		{"huge", `seq 100000 >&2; exit 65`, queue.Dead, queue.ReasonPermanent, `(?s)^exit status 65: \.\.\. \d+\n.*\n99999\n100000$`, 1, 0, 0},
		{"one long line", `head -c 100000 /dev/zero | tr "\0" x >&2; exit 65`, queue.Dead, queue.ReasonPermanent, `^exit status 65: \.\.\. x{1000}x+$`, 1, 0, 0},
		{"not UTF-8", `printf "a\377\000b" >&2; exit 65`, queue.Dead, queue.ReasonPermanent, "^exit status 65: a\uFFFD\uFFFDb$", 1, 0, 0},
		{"error in the file", `echo noise >&2; echo "{\"error\": \"in short\"}" >$ERRAND_RESULT; exit 65`,
			queue.Dead, queue.ReasonPermanent, `^exit status 65: in short$`, 1, 0, 0},
		{"snooze", `[ $ERRAND_ATTEMPT -gt 1 ] || { echo "{\"snooze\": 0.1}" >$ERRAND_RESULT; exit 75; }`, queue.Done, "", `^$`, 2, 0, 1},
		{"cancel", `echo "{\"cancel\": true}" >$ERRAND_RESULT; echo not wanted >&2; exit 1`, queue.Cancelled, "", `^exit status 1: not wanted$`, 1, 0, 0},
		{"done, whatever the file says", `echo "{\"cancel\": true}" >$ERRAND_RESULT`, queue.Done, "", `^$`, 1, 0, 0},
		{"checkpoint", `[ -n "$ERRAND_CHECKPOINT" ] || { echo "{\"checkpoint\": {\"at\": 7}}" >$ERRAND_RESULT; exit 1; }; [ "$ERRAND_CHECKPOINT" = "{\"at\":7}" ]`, queue.Done, "", `^$`, 2, 1, 0},
		{"checkpoint beside an end", `echo "{\"checkpoint\": 7, \"result\": 8}" >$ERRAND_RESULT; exit 65`, queue.Dead, queue.ReasonPermanent, `^exit status 65$`, 1, 0, 0},
		{"checkpoint that is too large", `{ printf "{\"checkpoint\": \""; head -c 70000 /dev/zero | tr "\0" x; echo "\"}"; } >$ERRAND_RESULT; exit 65`,
			queue.Dead, queue.ReasonPermanent, `ERRAND_RESULT: errand: checkpoint 70002: must be at most 65536 bytes`, 1, 0, 0},
		{"no checkpoint", `[ -z "$ERRAND_CHECKPOINT" ] || exit 65; echo "{\"checkpoint\": null}" >$ERRAND_RESULT; [ $ERRAND_ATTEMPT = 2 ]`, queue.Done, "", `^$`, 2, 1, 0},
		{"unknown field", `echo "{\"retry\": 1}" >$ERRAND_RESULT; exit 65`,
			queue.Dead, queue.ReasonPermanent, `^exit status 65: \(ERRAND_RESULT: json: unknown field "retry"\)$`, 1, 0, 0},
		{"no number", `echo "{\"retry_after\": -1}" >$ERRAND_RESULT; exit 65`,
			queue.Dead, queue.ReasonPermanent, `retry_after must be between 0 and `, 1, 0, 0},
		{"no number at all", `echo "{\"retry_after\": \"5\"}" >$ERRAND_RESULT; exit 65`,
			queue.Dead, queue.ReasonPermanent, `\(ERRAND_RESULT: retry_after must not be a JSON string\)$`, 1, 0, 0},
		{"no file", `mkdir $ERRAND_RESULT; exit 65`, queue.Dead, queue.ReasonPermanent, `ERRAND_RESULT: not a regular file`, 1, 0, 0},
	})
}

// A command that lives on after its timeout is killed. It ignores the signal from its beginning, as
// this process does: a trap of the shell may come after the timeout.
func TestWork_timeout(t *testing.T) {
	signal.Ignore(syscall.SIGTERM)
	defer signal.Reset(syscall.SIGTERM)
	verdicts(t, []verdict{
		{"timeout", `sleep 30`, queue.Dead, queue.ReasonExhausted, `^timeout of 200ms exceeded: signal: killed$`, 2, 1, 0},
	}, "--timeout", "200ms", "--kill-after", "100ms")
}

// verdicts runs commands, each as a job with one retry.
func verdicts(t *testing.T, cases []verdict, flags ...string) {
	t.Helper()
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	ids := make([]queue.ID, len(cases))
	onFile(t, file, func(q *queue.Queue) {
		for i, c := range cases {
			e, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run"}, &queue.JobOptions{
				Headers: map[string]string{"run": c.run}, Priority: -i,
			})
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = e.ID
		}
	})
	once := filepath.Join(t.TempDir(), "once.json")
	if err := os.WriteFile(once, []byte(`{"numRetries":1,"numNoDelayRetries":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	status, r, errs := drain(t, file, append(flags, "--concurrency", "4", "--policy", once)...)
	if status != statusDied || !r.Died || r.Waiting != 0 || len(r.Held) > 0 {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	onFile(t, file, func(q *queue.Queue) {
		for i, c := range cases {
			j, err := q.Job(t.Context(), ids[i])
			if err != nil {
				t.Fatal(err)
			}
			if j.State != c.state || j.Reason != c.reason || !regexp.MustCompile(c.failed).MatchString(j.Error) && j.State != queue.Done ||
				j.Attempt != c.attempt || j.Retry != c.retry || j.Snoozes != c.snoozes {
				t.Errorf("%s: %s, %s, attempt %d, retry %d, snoozes %d: %q", c.name, j.State, j.Reason, j.Attempt, j.Retry, j.Snoozes, j.Error)
			}
		}
	})
}

// What a command says beside status 0 is ignored, which is said once.
func TestWork_ignored(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	for range 2 {
		succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--header", `run=echo "{\"snooze\": 5}" >$ERRAND_RESULT`)
	}
	status, r, errs := drain(t, file)
	if n := strings.Count(errs, "counts beside others only"); status != 0 || r.Done != 2 || n != 1 {
		t.Errorf("status %d, %+v, said %d times: %s", status, r, n, errs)
	}
}

// The result of a command is kept with its job, and shown. Without a place for it the job is
// done all the same.
func TestWork_result(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	const said = `run=echo "{\"result\": {\"sum\": 3}}" >$ERRAND_RESULT`
	succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--header", said)
	if status, r, errs := drain(t, file); status != 0 || r.Done != 1 || errs != "" {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	var page queue.JobPage
	onFile(t, file, func(q *queue.Queue) {
		var err error
		if page, err = q.Jobs(t.Context(), queue.JobFilter{Kind: "run"}, nil); err != nil || len(page.Jobs) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
	})
	if out := succeed(t, "jobs", "show", file, page.Jobs[0].ID.String()); !strings.Contains(out, `result     {"sum":3}`) {
		t.Errorf("shown:\n%s", out)
	}
	succeed(t, "queues", "set", file, "default", "--retention", "-1s")
	succeed(t, "jobs", "enqueue", file, "--kind", "run", "--header", said)
	status, r, errs := drain(t, file)
	if status != 0 || r.Done != 1 || !strings.Contains(errs, "are not kept") {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
}

// What a command is told.
func TestWork_environment(t *testing.T) {
	needShell(t)
	t.Setenv("ERRAND_HEADER_OF_ANOTHER_JOB", "x")
	t.Setenv("ERRAND_HEADERS", "x")
	file, out := filepath.Join(t.TempDir(), "q.db"), filepath.Join(t.TempDir(), "out")
	var id queue.ID
	onFile(t, file, func(q *queue.Queue) {
		e, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run", JSON: []byte(`{"n": 1}`)}, &queue.JobOptions{Queue: "mail", Headers: map[string]string{
			"run":         `{ cat; env | grep -E '^ERRAND_(JOB|ATT|KIND|QUEUE|HEADER_)' | grep -v RUN= | sort; test -n "$ERRAND_RESULT"; } >` + out,
			"traceparent": "00-1", "X-Request.Id": "é=1", "x_request_id": "later", "nul": "a\x00b",
		}})
		if err != nil {
			t.Fatal(err)
		}
		id = e.ID
	})
	if status, r, errs := drain(t, file, "--queue", "mail"); status != 0 || r.Done != 1 {
		t.Fatalf("status %d, %+v: %s", status, r, errs)
	}
	got, err := os.ReadFile(out)
	want := fmt.Sprintf("{\"n\":1}\nERRAND_ATTEMPT=1\nERRAND_HEADER_TRACEPARENT=00-1\nERRAND_HEADER_X_REQUEST_ID=later\n"+
		"ERRAND_JOB_ID=%v\nERRAND_KIND=run\nERRAND_QUEUE=mail\n", id)
	if err != nil || string(got) != want {
		t.Errorf("the command was told, %v\n%s\nwant\n%s", err, got, want)
	}
}

// A Retry-After is a floor for the delay; with status 69 the whole lane waits for it.
//
//errand:shows commands of `errand work`
func TestWork_retryAfter(t *testing.T) {
	needShell(t)
	for _, c := range []struct {
		status int
		retry  int
	}{{75, 1}, {69, 0}} {
		file := filepath.Join(t.TempDir(), "q.db")
		var id queue.ID
		onFile(t, file, func(q *queue.Queue) {
			e, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run"}, &queue.JobOptions{Headers: map[string]string{
				"run": fmt.Sprintf(`[ $ERRAND_ATTEMPT -gt 1 ] || { echo '{"retry_after": 1.2}' >$ERRAND_RESULT; exit %d; }`, c.status),
			}})
			if err != nil {
				t.Fatal(err)
			}
			id = e.ID
		})
		began := time.Now()
		status, r, errs := drain(t, file)
		if took := time.Since(began); status != 0 || r.Done != 1 || r.Attempts != 2 || took < 1200*time.Millisecond {
			t.Errorf("%d: status %d after %v, %+v: %s", c.status, status, took, r, errs)
		}
		onFile(t, file, func(q *queue.Queue) {
			if j, err := q.Job(t.Context(), id); err != nil || j.Retry != c.retry || j.Attempt != 2 {
				t.Errorf("%d: retry %d of attempt %d, %v", c.status, j.Retry, j.Attempt, err)
			}
		})
	}
}

// A worker that is not able to run the command holds the lane, and costs no job
// anything, also those that have failed before while others were done. The next worker
// begins with the end of that hold.
//
//errand:shows commands of `errand work`
func TestWork_misconfigured(t *testing.T) {
	needShell(t)
	file, flag := filepath.Join(t.TempDir(), "q.db"), filepath.Join(t.TempDir(), "broken")
	var ids []queue.ID
	onFile(t, file, func(q *queue.Queue) {
		// The first job fails, the second is done, then the configuration breaks.
		for _, run := range []string{
			`[ -e ` + flag + ` ] && exit "$(cat ` + flag + `)"; [ $ERRAND_ATTEMPT -gt 1 ] || exit 75`, `echo 78 >` + flag, ``, ``,
		} {
			if run == "" {
				run = `[ -e ` + flag + ` ] && { echo no settings >&2; exit "$(cat ` + flag + `)"; } || exit 0`
			}
			e, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run"}, &queue.JobOptions{Headers: map[string]string{"run": run}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.ID)
		}
	})
	for _, status := range []string{"78", "126", "127"} {
		if status != "78" {
			if err := os.WriteFile(flag, []byte(status), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, r, errs := drain(t, file, "--concurrency", "1")
		if got != statusHeld || r.Waiting != 3 || r.Died || len(r.Held) != 1 || r.Held[0].Reason != misconfigured ||
			r.Held[0].Queue != "default" || r.Held[0].Kind != "run" || !strings.Contains(r.Held[0].By, "exit status "+status) {
			t.Errorf("%s: status %d, %+v: %s", status, got, r, errs)
		}
	}
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	if status, r, errs := drain(t, file); status != 0 || r.Waiting != 0 || len(r.Held) > 0 {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	onFile(t, file, func(q *queue.Queue) {
		for i, id := range ids {
			want := 0
			if i == 0 {
				want = 1
			}
			if j, err := q.Job(t.Context(), id); err != nil || j.State != queue.Done || j.Retry != want {
				t.Errorf("job %d: %s, retry %d, %v", i, j.State, j.Retry, err)
			}
		}
	})
}

// A command that is gone after the worker has begun is as status 127.
//
//errand:shows commands of `errand work`
func TestWork_commandVanishes(t *testing.T) {
	needShell(t)
	dir := t.TempDir()
	file, command := filepath.Join(dir, "q.db"), filepath.Join(dir, "once.sh")
	if err := os.WriteFile(command, []byte("#!/bin/sh\nrm \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run")
	succeed(t, "jobs", "enqueue", file, "--kind", "run")
	status, _, errs := errand(t, "", "work", file, "--kind", "run", "--concurrency", "1", "--until-empty", "--", command)
	if status != statusHeld || !strings.Contains(errs, "2 attempts, 1 done; 1 waiting, 0 dead") || !strings.Contains(errs, "held: kind run in queue default, misconfigured: errand work on ") {
		t.Errorf("status %d: %s", status, errs)
	}
	status, _, errs = errand(t, "", "work", file, "--kind", "run", "--until-empty", "--", command)
	if status != 2 || !strings.Contains(errs, "no such file") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// The end of the guard does not hide what became of the jobs.
func TestWork_guardKilled(t *testing.T) {
	needShell(t)
	if _, err := exec.LookPath("pkill"); err != nil {
		t.Skip(err) // not part of a shell; CI installs it
	}
	file := filepath.Join(t.TempDir(), "q.db")
	succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--header", "run=pkill -9 -P $PPID -f work-guard")
	if status, r, errs := drain(t, file); status != 0 || r.Done != 1 || !strings.Contains(errs, "signal: killed") {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A log that cannot be written does not hold up commands, and the job has its error.
func TestWork_fullLog(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run")
	args := []string{"work", file, "--kind", "run", "--until-empty", "--grace", "0s", "--kill-after", "0s", "--", "sh", "-c", "seq 100000 >&2; exit 65"}
	if status := run(t.Context(), args, strings.NewReader(""), &strings.Builder{}, full{}); status != statusDied {
		t.Errorf("status %d", status)
	}
	if out := succeed(t, "dead", "ls", file); !strings.Contains(out, `99999\n100000`) {
		t.Errorf("the error is %s", out)
	}
}

// What is held is named without what it lacks: a queue, a kind, who holds it.
func TestHoldJSON_text(t *testing.T) {
	for _, c := range []struct {
		hold queue.HoldState
		want string
	}{
		{queue.HoldState{Lane: queue.Lane{Queue: "mail"}, Reason: "paused"}, "queue mail, paused"},
		{queue.HoldState{Lane: queue.Lane{Kind: "send"}, Reason: "modem"}, "kind send, modem"},
		{queue.HoldState{Lane: queue.Lane{Queue: "mail", Kind: "send"}, Reason: "unavailable", By: "errand"}, "kind send in queue mail, unavailable: errand"},
		{queue.HoldState{Lane: queue.Lane{Queue: "mail"}, Reason: "unavailable", Detail: "no\nroute"}, `queue mail, unavailable: no\nroute`},
		{queue.HoldState{Lane: queue.Lane{Queue: "mail"}, Reason: "unavailable", By: "errand", Detail: "no route"}, "queue mail, unavailable: errand: no route"},
	} {
		if got := holdText(&c.hold); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A paused queue ends the work with status 3; one that is empty with 0.
func TestWork_untilEmpty(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	onFile(t, file, func(q *queue.Queue) {
		if err := q.Pause(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
	})
	if status, r, errs := drain(t, file); status != 0 || r.Waiting != 0 {
		t.Errorf("nothing to do: status %d, %+v: %s", status, r, errs)
	}
	succeed(t, "jobs", "enqueue", file, "--kind", "run", "--header", "run=exit 0")
	if status, r, errs := drain(t, file); status != statusHeld || r.Waiting != 1 || r.Held[0].Reason != "paused" {
		t.Errorf("paused: status %d, %+v: %s", status, r, errs)
	}
	onFile(t, file, func(q *queue.Queue) {
		if err := q.Resume(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
	})
	// A hold that ends soon is waited for.
	onFile(t, file, func(q *queue.Queue) {
		if err := q.Hold(t.Context(), queue.Lane{Kind: "run"}, &queue.HoldOptions{For: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	})
	if status, r, errs := drain(t, file, "--rate", "5"); status != 0 || r.Done != 1 {
		t.Errorf("held for a moment: status %d, %+v: %s", status, r, errs)
	}
}

// Jobs that cannot reach the other side while others of their kind do are held by nobody,
// but put off one by one. They do not keep the work from its end, as one does that is only
// due later.
func TestWork_untilEmpty_putOff(t *testing.T) {
	needShell(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	work := func(flags ...string) (status int, out, errs string) {
		file := filepath.Join(t.TempDir(), "q.db")
		onFile(t, file, func(q *queue.Queue) {
			for i := range 10 {
				o := &queue.JobOptions{Priority: -i, Headers: map[string]string{"run": "exit 0"}}
				switch {
				case i%3 == 1: // so that each is followed by one that is done: a lane of several hosts
					o.Headers["run"] = "echo no route >&2; exit 69"
				case i == 9:
					o.Delay = 500 * time.Millisecond
				}
				if _, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run"}, o); err != nil {
					t.Fatal(err)
				}
			}
		})
		var o, e strings.Builder
		args := append([]string{"work", file, "--kind", "run", "--until-empty", "--hold-wait", "300ms", "--concurrency", "1"}, flags...)
		status = run(ctx, append(args, "--", "sh", "-c", `eval "$ERRAND_HEADER_RUN"`), strings.NewReader(""), &o, &e)
		return status, o.String(), e.String()
	}
	status, out, errs := work("--json")
	var r left
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err, out, errs)
	}
	if status != statusHeld || r.Done != 7 || r.Waiting != 3 || r.Died || len(r.Held) > 0 ||
		r.PutOff == nil || r.PutOff.N != 3 || r.PutOff.Error != "exit status 69: no route" || r.PutOff.Until.IsZero() {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if want := `
  "put_off": {
    "n": 3,
    "until": "<time>Z",
    "error": "exit status 69: no route"
  }
}
`; !strings.HasSuffix(constant(out, new([]string)), want) {
		t.Errorf("got\n%s\nwant%s", out, want)
	}
	status, _, errs = work()
	if want := regexp.MustCompile(`attempts, 7 done; 3 waiting, 0 dead
errand: put off: 3 jobs that cannot reach the other side, the first until 20.*: exit status 69: no route\n$`); status != statusHeld || !want.MatchString(errs) {
		t.Errorf("status %d: %s", status, errs)
	}
}

// Jobs behind others of their groups are left, whoever those are for.
func TestWork_groups(t *testing.T) {
	needShell(t)
	add := func(file, kind, run string) {
		succeed(t, "jobs", "enqueue", file, "--create", "--kind", kind, "--group", "g", "--header", "run="+run)
	}
	for name, heads := range map[string]string{"a dead one": "run", "one of another kind": "other"} {
		file := filepath.Join(t.TempDir(), "q.db")
		add(file, heads, "exit 65")
		add(file, "run", "exit 0")
		status, r, errs := drain(t, file, "--hold-wait", "200ms")
		if status != statusHeld || r.Waiting != 1 || r.Blocked != 1 || r.Done != 0 || r.Died != (heads == "run") {
			t.Errorf("%s: status %d, %+v: %s", name, status, r, errs)
		}
		if status, _, errs = errand(t, "", "work", file, "--kind", "run", "--until-empty", "--hold-wait", "0s", "--", "true"); status != statusHeld ||
			!strings.Contains(errs, "\nerrand: blocked: 1 job behind others of their groups, see: errand groups ls\n") {
			t.Errorf("%s: status %d: %s", name, status, errs)
		}
	}
	file := filepath.Join(t.TempDir(), "q.db")
	for range 3 {
		add(file, "run", "exit 0")
	}
	if status, r, errs := drain(t, file); status != 0 || r.Done != 3 {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	status, _, errs := errand(t, "", "work", file, "--kind", "run", "--until-empty", "--hold-wait", "5m", "--", "true")
	if status != statusUnusable || !strings.Contains(errs, "--hold-wait 5m0s: must be at most 4m0s") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// A prefix stands for all queues that begin with it.
func TestWork_prefix(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	for _, name := range []string{"web/a", "web/b", "web"} {
		succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--queue", name, "--header", "run=exit 0")
	}
	if status, r, errs := drain(t, file, "--queue", "web/*"); status != 0 || r.Done != 2 || r.Waiting != 0 {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	succeed(t, "jobs", "enqueue", file, "--kind", "run", "--queue", "web/c", "--header", "run=exit 65")
	if status, r, errs := drain(t, file, "--queue", "web/*"); status != statusDied || r.Dead != 1 {
		t.Errorf("status %d, %+v: %s", status, r, errs)
	}
	if status, r, errs := drain(t, file, "--queue", "*"); status != 0 || r.Done != 1 || r.Dead != 1 {
		t.Errorf("all queues: status %d, %+v: %s", status, r, errs)
	}
}

// No more commands start a second than the rate says. The first is free.
func TestWork_rate(t *testing.T) {
	needShell(t)
	file := filepath.Join(t.TempDir(), "q.db")
	for range 3 {
		succeed(t, "jobs", "enqueue", file, "--create", "--kind", "run", "--header", "run=exit 0")
	}
	began := time.Now()
	if status, r, errs := drain(t, file, "--rate", "5"); status != 0 || r.Done != 3 || time.Since(began) < 400*time.Millisecond {
		t.Errorf("status %d after %v, %+v: %s", status, time.Since(began), r, errs)
	}
}
