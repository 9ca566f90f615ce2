//go:build unix

package apitest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// The tests of this file have a second process work on the same database: the
// test binary itself, told by its environment what to be.
const (
	roleEnv  = "ERRAND_TEST_ROLE"
	dbEnv    = "ERRAND_TEST_DB"
	clockEnv = "ERRAND_TEST_CLOCK" // how far the clock is ahead
	queueEnv = "ERRAND_TEST_QUEUE"
	leaseEnv = "ERRAND_TEST_LEASE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := beOther(role); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	kit.HeedSignals()
	os.Exit(m.Run())
}

// hold is a job whose handler runs until it is told to return.
type hold struct{ Name string }

func (hold) Kind() string { return "hold" }

// memo is a job that only the other process has a handler for.
type memo struct{ Text string }

func (memo) Kind() string { return "memo" }

const (
	shortLease = time.Second     // the shortest there is, for those that are to lapse
	longLease  = 6 * time.Second // for those that must not, on a busy machine either
)

// beOther is the other process. It says on its standard output what it does,
// and a hold returns when a line comes on its standard input: with "away" its lane is held.
func beOther(role string) error {
	ctx := context.Background()
	ahead, err := time.ParseDuration(os.Getenv(clockEnv))
	if err != nil {
		return err
	}
	if what, ok := strings.CutPrefix(role, "blocked "); ok {
		return workBlocked(ctx, what)
	}
	q, err := errand.Open(ctx, os.Getenv(dbEnv), &errand.Options{
		Clock:  func() time.Time { return time.Now().Add(ahead) },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	switch role {
	case "enqueue":
		return sendNotes(ctx, q)
	case "tick":
		return fireTicks(ctx, q)
	case "brief":
		return runBriefs(ctx, q)
	case "interrupt":
		return workUntilInterrupted(ctx, q)
	}
	lease, err := time.ParseDuration(os.Getenv(leaseEnv))
	if err != nil {
		return err
	}
	if strings.HasPrefix(role, "ends ") {
		return endJobs(ctx, q, role, lease)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: lease, Queues: []string{os.Getenv(queueEnv)}})
	lines := bufio.NewScanner(os.Stdin)
	if role == "hold" {
		errand.Handle(w, func(_ context.Context, job *errand.Job[hold]) error {
			fmt.Println("hold", job.Args.Name, job.Attempt)
			lines.Scan()
			if lines.Text() == "away" {
				return errand.HoldLane(time.Second, errors.New("away"))
			}
			fmt.Println("return", job.Args.Name, job.Attempt)
			return nil
		})
	}
	errand.Handle(w, func(_ context.Context, job *errand.Job[memo]) error {
		fmt.Println("note", job.Args.Text)
		return nil
	})
	fmt.Println("ready")
	return w.Run(ctx)
}

// sendNotes enqueues a note for each line of its input, to the queue that it names before
// a colon, if any.
func sendNotes(ctx context.Context, q *errand.Queue) error {
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		o := errand.JobOptions{}
		text := lines.Text()
		if queue, rest, ok := strings.Cut(text, ": "); ok {
			o.Queue, text = queue, rest
		}
		if _, err := q.Enqueue(ctx, memo{text}, &o); err != nil {
			return err
		}
	}
	return q.Close()
}

// fireTicks declares a schedule and works until its input ends.
func fireTicks(ctx context.Context, q *errand.Queue) error {
	err := q.Schedule(ctx, errand.Schedule{Name: "second", Spec: "* * * * * *", Zone: "Europe/Berlin", Args: memo{}})
	if err != nil {
		return err
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[memo]) error {
		fmt.Println("tick", job.Headers["errand-tick"])
		return nil
	})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends however the test does
		_ = w.Shutdown(ctx)                  // what Run returns
	}()
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// workUntilInterrupted works as a program does that handles signals. Its holds
// say when they are cut short, and return when a line comes all the same.
func workUntilInterrupted(ctx context.Context, q *errand.Queue) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	w := errand.NewWorker(q, &errand.WorkerOptions{Grace: -1, StuckAfter: time.Minute})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[hold]) error {
		fmt.Println("hold", job.Args.Name, job.Attempt)
		<-ctx.Done()
		fmt.Println("cut", errors.Is(context.Cause(ctx), errand.ErrShutdown))
		bufio.NewScanner(os.Stdin).Scan()
		return nil
	})
	fmt.Println("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// other is the other process as the test sees it.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startOther(t *testing.T, path, role string, lease, ahead time.Duration, queue string) *other {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, dbEnv+"="+path, clockEnv+"="+ahead.String(), queueEnv+"="+queue, leaseEnv+"="+lease.String())
	cmd.Stderr = t.Output() // not go test's own: whoever is left stopped would hold that open
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &other{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone already
		_ = cmd.Wait()         // and was killed
	})
	o.wants("ready")
	return o
}

// wants reads on to the line that is wanted. An error, or a job that returned otherwise, ends
// the test.
func (o *other) wants(line string) {
	o.t.Helper()
	for o.out.Scan() {
		if o.out.Text() == line {
			return
		}
		if strings.HasPrefix(o.out.Text(), "error") || strings.HasPrefix(o.out.Text(), "return") && strings.HasPrefix(line, "return") {
			break
		}
	}
	o.t.Fatalf("the other process said %q, want %q", o.out.Text(), line)
}

func (o *other) says(line string) {
	o.t.Helper()
	if _, err := fmt.Fprintln(o.in, line); err != nil {
		o.t.Fatal(err)
	}
}

func (o *other) signal(s syscall.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(s); err != nil {
		o.t.Fatal(err)
	}
}

// stop stops the process while it is this one's turn to write. In the middle of
// a write of its own it would keep everybody else from writing for as long as
// it is stopped, like any holder of SQLite's lock.
func (o *other) stop(q *errand.Queue) {
	o.t.Helper()
	err := q.Tx(o.t.Context(), func(*sql.Tx) error {
		o.signal(syscall.SIGSTOP)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(o.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			return fmt.Errorf("the other process does not stop: status %v, %w", status, err)
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// started is a run of a hold in this process.
type started struct {
	job    *errand.Job[hold]
	at     time.Time
	finish chan struct{} // close it to let the handler return
}

// holder has a worker of this process run holds.
func holder(t *testing.T, q *errand.Queue, lease time.Duration) <-chan started {
	t.Helper()
	runs := make(chan started, 10)
	w := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: lease, Grace: -1})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[hold]) error {
		s := started{job, time.Now(), make(chan struct{})}
		runs <- s
		select {
		case <-s.finish:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return runs
}

func openShared(t *testing.T) (*errand.Queue, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	// The timeout is so long that a loaded machine fails no call.
	q, err := errand.Open(t.Context(), path, &errand.Options{SQLite: errand.SQLiteOptions{BusyTimeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q, path
}

func mustEnqueue(t *testing.T, q *errand.Queue, args errand.Args) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), args, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.ID
}

// waitFor asks for a job until it is in the state that is wanted.
func waitFor(t *testing.T, q *errand.Queue, id errand.ID, want errand.State) errand.JobInfo {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		info, err := q.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if info.State == want {
			return info
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job is %s, want %s: %+v", info.State, want, info)
		}
	}
}

//errand:shows [stopped] | | a process is stopped in its handler, and reports late
func TestProcesses_StoppedPastItsLease(t *testing.T) {
	q, path := openShared(t)
	o := startOther(t, path, "hold", shortLease, 0, "default")
	id := mustEnqueue(t, q, hold{"a"})
	o.wants("hold a 1")
	o.stop(q)
	here := <-holder(t, q, longLease) // no sooner than the lease has been seen unchanged
	if here.job.Attempt != 2 || here.job.Crashes != 0 {
		t.Errorf("attempt %d, crashes %d: want 2, and no crash of a process that lives", here.job.Attempt, here.job.Crashes)
	}
	o.says("return")
	o.signal(syscall.SIGCONT)
	o.wants("return a 1")
	mustEnqueue(t, q, memo{"after"})
	o.wants("note after") // leased after the outcome of its hold was refused
	info, err := q.Job(t.Context(), id)
	if err != nil || info.State != errand.Running || info.Attempt != 2 {
		t.Fatalf("the job is %s in attempt %d, %v: want it still running here", info.State, info.Attempt, err)
	}
	close(here.finish)
	waitFor(t, q, id, errand.Done)
}

//errand:shows [killed] | | a process is killed in its handler; another lives
func TestProcesses_KilledWithRunningJobs(t *testing.T) {
	const lease = time.Minute // recovery must not need it to end
	q, path := openShared(t)
	live := startOther(t, path, "hold", longLease, 0, "live")
	kept, err := q.Enqueue(t.Context(), hold{"b"}, &errand.JobOptions{Queue: "live"})
	if err != nil {
		t.Fatal(err)
	}
	live.wants("hold b 1")
	o := startOther(t, path, "hold", lease, 0, "default")
	id := mustEnqueue(t, q, hold{"a"})
	o.wants("hold a 1")
	runs := holder(t, q, lease)
	<-time.After(500 * time.Millisecond) // how long the job has run: see the second after a crash
	killed := time.Now()
	o.signal(syscall.SIGKILL)
	here := <-runs
	took := here.at.Sub(killed)
	t.Logf("running again %v after kill -9", took)
	if took >= lease/2 {
		t.Errorf("running again %v after kill -9: want it long before the lease of %v ends", took, lease)
	}
	if here.job.ID != id || here.job.Attempt != 2 || here.job.Crashes != 1 {
		t.Errorf("running %v, attempt %d, crashes %d: want %v, 2, 1", here.job.ID, here.job.Attempt, here.job.Crashes, id)
	}
	close(here.finish)
	waitFor(t, q, id, errand.Done)
	info, err := q.Job(t.Context(), kept.ID)
	if err != nil || info.State != errand.Running || info.Attempt != 1 {
		t.Fatalf("the job of the live process is %s in attempt %d, %v: want it untouched", info.State, info.Attempt, err)
	}
	live.says("return")
	waitFor(t, q, kept.ID, errand.Done)
}

// Three times somebody loses patience with a handler that goes on after Ctrl-C,
// and kills the program. That is not the job's fault: the fourth run ends it.
//
//errand:shows killed while it stops | | three Ctrl-C and a kill, three times: no crash is counted, the fourth run ends the job
func TestProcesses_InterruptedAndKilled(t *testing.T) {
	q, path := openShared(t)
	id := mustEnqueue(t, q, hold{"a"})
	for attempt := 1; ; attempt++ {
		o := startOther(t, path, "interrupt", 0, 0, "")
		o.wants(fmt.Sprint("hold a ", attempt))
		for range 3 {
			o.signal(syscall.SIGINT)
		}
		o.wants("cut true")
		if attempt <= 3 {
			o.signal(syscall.SIGKILL)
			_ = o.cmd.Wait() // it was killed
			continue
		}
		o.says("return")
		if err := o.cmd.Wait(); err != nil {
			t.Errorf("after a clean stop: %v", err)
		}
		break
	}
	if info := waitFor(t, q, id, errand.Done); info.Attempt != 4 || info.Crashes != 0 {
		t.Errorf("attempt %d, crashes %d: want 4 and none", info.Attempt, info.Crashes)
	}
}

//errand:shows [ahead] | | the clock of one process is an hour ahead of that of another
func TestProcesses_ClockAhead(t *testing.T) {
	q, path := openShared(t)
	runs := holder(t, q, longLease)
	id := mustEnqueue(t, q, hold{"a"})
	here := <-runs
	o := startOther(t, path, "hold", longLease, time.Hour, "default")
	<-time.After(2 * longLease) // how long the job runs
	mustEnqueue(t, q, memo{"still here"})
	o.wants("note still here")
	info, err := q.Job(t.Context(), id)
	if err != nil || info.State != errand.Running || info.Attempt != 1 {
		t.Fatalf("the job is %s in attempt %d, %v: want its lease untouched", info.State, info.Attempt, err)
	}
	close(here.finish)
	if info := waitFor(t, q, id, errand.Done); info.Attempt != 1 {
		t.Errorf("%d attempts, want 1", info.Attempt)
	}
}

func TestProcesses_WakeEachOther(t *testing.T) { wakeEachOther(t, nil, "") }

// The other process makes a new queue for each note.
func TestProcesses_FollowPrefix(t *testing.T) {
	wakeEachOther(t, &errand.WorkerOptions{Queues: []string{"web/*"}}, "web/%d: ")
}

func wakeEachOther(t *testing.T, worker *errand.WorkerOptions, queue string) {
	q, path := openShared(t)
	heard := make(chan string)
	w := errand.NewWorker(q, worker)
	errand.Handle(w, func(_ context.Context, job *errand.Job[memo]) error {
		heard <- job.Args.Text
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	o := startOther(t, path, "enqueue", 0, 0, "")
	began := time.Now()
	for i := range 20 {
		text := fmt.Sprint("note ", i)
		sent := time.Now()
		if queue != "" {
			o.says(fmt.Sprintf(queue, i) + text)
		} else {
			o.says(text)
		}
		if got := <-heard; got != text {
			t.Errorf("heard %q, want %q", got, text)
		}
		t.Logf("heard after %v", time.Since(sent))
	}
	if took := time.Since(began); took >= 19*time.Second { // which looking once a second would take
		t.Errorf("20 notes took %v", took)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
