package torture_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// alone is a disk that nothing but errand fills.
type alone struct {
	name    string
	disk    int64
	ballast int64 // 0: the default
	args    int
	way     string // how it goes on, see TestDiskFull_Alone
}

func (a *alone) open(path string, log io.Writer) (*errand.Queue, error) {
	logger := slog.New(slog.NewTextHandler(log, nil))
	store, err := sqlite.Open(path, &sqlite.Options{Ballast: a.ballast, Logger: logger})
	if err != nil {
		return nil, err
	}
	return errand.New(context.Background(), store, &errand.Options{Policy: quick, Logger: logger})
}

// aloneSizes are the disks of TestDiskFull_Alone.
var aloneSizes = []alone{
	{name: "6 MiB", disk: 6 << 20, ballast: 1 << 20}, {name: "12 MiB", disk: 12 << 20}, {name: "32 MiB", disk: 32 << 20},
	{name: "48 MiB", disk: 48 << 20}, {name: "160 MiB", disk: 160 << 20},
}

// A disk is filled by jobs alone, until no more are taken. Then a worker runs all of them,
// a tenth of which fail twice; the rows of all are kept, as they are by default. After
// that jobs can be added again: at once, or as soon as those that have ended are purged.
//
//errand:shows a disk that jobs alone have filled | | the same on real disks of 6 to 160 MiB, with a tenth of the jobs failing twice; none is lost
func TestDiskFull_Alone(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	t.Parallel()
	for _, size := range aloneSizes {
		for _, args := range []int{100, 1000, 4 << 10, 40 << 10} {
			for _, way := range []string{"goes on", "opened again", "killed", "by EnqueueTx"} {
				a := size
				a.args, a.way = args, way
				t.Run(fmt.Sprintf("%s/%d/%s", a.name, args, way), func(t *testing.T) {
					t.Parallel()
					a.run(t)
				})
			}
		}
	}
}

func (a *alone) run(t *testing.T) {
	d := newDisk(t, a.disk)
	path := filepath.Join(d.dir, "jobs.db")
	log := &logged{}
	n := 0
	if a.way == "killed" {
		n = a.fillAndDie(t, path)
	}
	q, err := a.open(path, log)
	if err != nil {
		t.Fatal(err)
	}
	if a.way != "killed" {
		if n, err = a.fill(q); !errors.Is(err, errand.ErrFull) {
			t.Fatalf("after %d jobs: %v, want ErrFull", n, err)
		}
	}
	full := sizes(d.dir)
	if a.way == "opened again" {
		if err := q.Close(); err != nil {
			t.Fatal("Close: ", err)
		}
		if q, err = a.open(path, log); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("full after %d jobs: %s", n, full)
	begun := time.Now()
	attempts := a.drain(t, q, n)
	if t.Failed() {
		t.Fatalf("it stands still with %s; the log ends with\n%s", sizes(d.dir), log.end())
	}
	took := time.Since(begun)
	drained := sizes(d.dir)
	again := a.addsAgain(t, q)
	given := log.count("the ballast is given up")
	if err := q.Close(); err != nil {
		t.Error("Close: ", err)
	}
	t.Logf("%s | %d | %s | enqueued %d | attempts %d | ended %d | lost 0 | %v | again %s | ballast given up %d times; drained: %s",
		a.name, a.args, a.way, n, attempts, n, took.Round(100*time.Millisecond), again, given, drained)
	d.unmount()
}

// fill adds jobs until there is no room: many at a time, then one by one. It returns how
// many were acknowledged.
func (a *alone) fill(q *errand.Queue) (n int, err error) {
	pad := strings.Repeat("x", a.args)
	for _, batch := range []int{max(1, min(100, 200_000/a.args)), 1} {
		refused := 0
		for refused < 20 { // small ones may find a place somewhere
			jobs := make([]errand.NewJob, batch)
			for i := range jobs {
				jobs[i] = errand.NewJob{Args: order{N: n + i, Pad: pad}}
			}
			if a.way == "by EnqueueTx" {
				err = q.Tx(context.Background(), func(tx *sql.Tx) error {
					for _, j := range jobs {
						if _, err := q.EnqueueTx(context.Background(), tx, j.Args, nil); err != nil {
							return err
						}
					}
					return nil
				})
			} else {
				_, err = q.EnqueueMany(context.Background(), jobs)
			}
			if err == nil {
				n += batch
				continue
			}
			if refused++; !errors.Is(err, errand.ErrFull) {
				return n, err
			}
		}
	}
	return n, err
}

func init() { roles["fill"] = fillAndWait }

// fillAndWait is a program that fills its disk, says so, and waits to be killed.
func fillAndWait(p part, v *voice) error {
	a := &alone{args: p.Size, ballast: int64(p.Jobs)}
	q, err := a.open(p.DB, os.Stderr)
	if err != nil {
		return err
	}
	n, err := a.fill(q)
	if !errors.Is(err, errand.ErrFull) {
		return fmt.Errorf("after %d jobs: %w, want ErrFull", n, err)
	}
	v.say("full %d", n)
	select {}
}

// fillAndDie fills the disk by a program that is killed then, and removes what a reboot
// would: the index of the log.
func (a *alone) fillAndDie(t *testing.T, path string) (n int) {
	t.Helper()
	c := start(t, newLedger(), part{Role: "fill", DB: path, Size: a.args, Jobs: int(a.ballast)})
	limit := time.After(10 * time.Minute)
	for full := false; !full; {
		select {
		case line, ok := <-c.said:
			if !ok {
				t.Fatal("it has ended before its disk was full")
			}
			if strings.HasPrefix(line, "full ") {
				if _, err := fmt.Sscanf(line, "full %d", &n); err != nil {
					t.Fatal(err)
				}
				full = true
			}
		case <-limit:
			t.Fatal("its disk is not full after 10 minutes")
		}
	}
	c.kill()
	if err := os.Remove(path + "-shm"); err != nil {
		t.Fatal(err)
	}
	return n
}

// drain has a worker run n jobs to their end, and returns how many attempts that took.
func (a *alone) drain(t *testing.T, q *errand.Queue, n int) (attempts int) {
	t.Helper()
	runs := make(chan int, 1024)
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[order]) error {
		runs <- job.Args.N
		if job.Args.N%10 == 0 && job.Attempt <= 2 {
			return errors.New("the network is away: no route to host")
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	seen := map[int]int{}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	var states map[errand.State]int
	for moved := time.Now(); states[errand.Done] < n; {
		select {
		case i := <-runs:
			seen[i]++
			attempts++
			moved = time.Now()
			continue
		case <-look.C:
		}
		before := states[errand.Done]
		if states = a.states(t, q); states[errand.Done] != before {
			moved = time.Now()
		}
		if time.Since(moved) > time.Minute {
			t.Errorf("nothing has moved for a minute: %d attempts, %v of %d jobs", attempts, states, n)
			break
		}
	}
	stop()
	for over := false; !over; {
		select {
		case i := <-runs:
			seen[i]++
			attempts++
		case err := <-ended:
			if over = true; err != nil {
				t.Error("Run: ", err)
			}
		}
	}
	if t.Failed() {
		return attempts
	}
	for i := range n {
		want := 1
		if i%10 == 0 {
			want = 3
		}
		if seen[i] != want {
			t.Fatalf("job %d of %d has had %d attempts, want %d", i, n, seen[i], want)
		}
	}
	return attempts
}

func (a *alone) states(t *testing.T, q *errand.Queue) map[errand.State]int {
	t.Helper()
	counts, err := q.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[errand.State]int{}
	for _, c := range counts {
		out[c.State] += int(c.N)
	}
	return out
}

// addsAgain adds a job, and reports when that was possible.
func (a *alone) addsAgain(t *testing.T, q *errand.Queue) string {
	t.Helper()
	add := func() bool {
		_, err := q.Enqueue(t.Context(), order{Pad: strings.Repeat("x", a.args)}, nil)
		if err != nil && !errors.Is(err, errand.ErrFull) {
			t.Fatal(err)
		}
		return err == nil
	}
	begun := time.Now()
	for time.Since(begun) < 10*time.Second { // the ballast is not tried all the time
		if add() {
			return "by itself after " + time.Since(begun).Round(time.Second).String()
		}
		<-time.After(100 * time.Millisecond)
	}
	if _, err := q.Delete(t.Context(), errand.JobFilter{States: []errand.State{errand.Done}}); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, "jobs can be enqueued again", add)
	return "after a purge"
}

// The same with nothing but the command.
//
//errand:shows a disk that jobs alone have filled
func TestDiskFull_AloneByCommand(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	exe := filepath.Join(t.TempDir(), "errand")
	if out, err := exec.Command("go", "build", "-o", exe, "../cmd/errand").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, a := range []alone{{name: "12 MiB", disk: 12 << 20, args: 4 << 10}, {name: "32 MiB", disk: 32 << 20, args: 40 << 10}} {
		t.Run(a.name, func(t *testing.T) {
			d := newDisk(t, a.disk)
			path := filepath.Join(d.dir, "jobs.db")
			line := fmt.Sprintf("{\"Pad\":%q}\n", strings.Repeat("x", a.args))
			for _, batch := range []int{100, 1} {
				for status := 0; status == 0; {
					cmd := exec.Command(exe, "jobs", "enqueue", path, "--create", "--kind", "order", "--stdin")
					cmd.Stdin = strings.NewReader(strings.Repeat(line, batch))
					var stderr bytes.Buffer
					cmd.Stderr = &stderr
					err := cmd.Run()
					var exit *exec.ExitError
					if status = cmd.ProcessState.ExitCode(); err != nil && !errors.As(err, &exit) || status != 0 && status != 2 {
						t.Fatalf("enqueue: %v: %s", err, &stderr)
					}
				}
			}
			full := sizes(d.dir)
			cmd := exec.Command(exe, "work", path, "--kind", "order", "--until-empty", "--json", "--", "true")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			cmd.WaitDelay = time.Minute
			alarm := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Signal(os.Interrupt) })
			defer alarm.Stop()
			begun := time.Now()
			out, err := cmd.Output()
			var did struct{ Attempts, Done, Waiting, Dead int }
			if e := json.Unmarshal(out, &did); err != nil || e != nil || did.Done == 0 || did.Waiting > 0 || did.Dead > 0 {
				t.Fatalf("work: %v: %s: %s; %s", cmp.Or(err, e), out, &stderr, full)
			}
			t.Logf("%s | %d | by the command | attempts %d | ended %d | lost 0 | %v; full: %s", a.name, a.args,
				did.Attempts, did.Done, time.Since(begun).Round(100*time.Millisecond), full)
			d.unmount()
		})
	}
}
