//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func init() { roles["keeper"] = keeper }

// keeper enqueues jobs that wait, says which were acknowledged, and then rests. It says when
// its queue has closed itself, and why.
func keeper(p part, v *voice) error {
	ctx := context.Background()
	q, err := errand.Open(ctx, p.DB, &errand.Options{Logger: slog.New(closings{slog.NewTextHandler(io.Discard, nil), v})})
	if err != nil {
		return err
	}
	if p.Workers > 0 {
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"other"}})
		errand.Handle(w, func(context.Context, *errand.Job[order]) error { return nil })
		go func() { v.say("worked %v", w.Run(ctx)) }()
	}
	for n := 0; p.Jobs < 0 || n < p.Jobs; n++ {
		e, err := q.Enqueue(ctx, order{N: p.First + n}, &errand.JobOptions{Delay: time.Hour})
		if err != nil {
			v.say("refused %v", err)
			break
		}
		v.say("kept %d", e.ID.Key())
		if n == 9 {
			v.say("ready")
		}
		time.Sleep(p.Pause)
	}
	select {} // until it is killed
}

// closings says that a queue has closed itself, and why.
type closings struct {
	slog.Handler
	voice *voice
}

func (c closings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key != "error":
		case r.Message == "errand: the queue is closed":
			c.voice.say("closed %v", a.Value)
		default:
			c.voice.say("logged %s: %v", r.Message, a.Value)
		}
		return true
	})
	return nil
}

// takings are ways in which others take away or replace the files of a database. spare is
// what the three files were a moment ago.
var takings = []struct {
	name string
	take func(path, spare string) error
}{
	{"log deleted", func(path, _ string) error { return os.Remove(path + "-wal") }},
	{"index deleted", func(path, _ string) error { return os.Remove(path + "-shm") }},
	{"log and index deleted", func(path, _ string) error { return errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm")) }},
	{"log moved", func(path, _ string) error { return os.Rename(path+"-wal", path+".moved") }},
	{"log replaced by an empty one", func(path, spare string) error {
		return errors.Join(os.Truncate(spare+"-wal", 0), os.Rename(spare+"-wal", path+"-wal"))
	}},
	{"log replaced by an earlier one", func(path, spare string) error { return os.Rename(spare+"-wal", path+"-wal") }},
	{"index replaced", func(path, spare string) error { return os.Rename(spare+"-shm", path+"-shm") }},
	{"database deleted", func(path, _ string) error { return os.Remove(path) }},
	{"database replaced by an earlier one", func(path, spare string) error { return os.Rename(spare, path) }},
	{"all restored", func(path, spare string) error {
		var errs []error
		for _, end := range []string{"", "-wal", "-shm"} {
			errs = append(errs, os.Rename(spare+end, path+end))
		}
		return errors.Join(errs...)
	}},
}

// What processes have acknowledged is in the database, or in a copy that they name, once they
// have noticed that a file of it was taken away, each way beside one and two processes, at
// rest and under load.
//
//errand:shows [taken-away] | | the log or its index is taken away or replaced while processes have the database open
func TestTaken(t *testing.T) {
	t.Parallel()
	random, times := dice(t), 1
	slots := make(chan bool, 4)
	if full() {
		times = 5
	}
	var mu sync.Mutex
	var sum tally
	t.Run("all", func(t *testing.T) {
		for i, taking := range takings {
			for n := range 4 * times {
				two, loaded := n&1 == 1, n&2 == 2
				if !full() && n != i%4 { // each way once, and half of them beside two
					continue
				}
				seed := random.Uint64()
				t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(taking.name, " ", "_"), n), func(t *testing.T) {
					t.Parallel()
					slots <- true
					defer func() { <-slots }()
					got := takeAway(t, taking.take, two, loaded, seed)
					mu.Lock()
					defer mu.Unlock()
					sum.add(got)
				})
			}
		}
	})
	t.Logf("%d runs: %d acknowledged, %d in the database, %d more in copies, %d lost; closed after %v at most, in %d runs after more than 2 s",
		sum.runs, sum.kept, sum.found, sum.copied, sum.lost, sum.last.Round(time.Millisecond), sum.late)
}

// tally is what has become of jobs.
type tally struct {
	runs, kept, found, copied, lost, late int
	last                                  time.Duration
}

func (t *tally) add(n tally) {
	t.runs, t.kept, t.found, t.copied, t.lost = t.runs+1, t.kept+n.kept, t.found+n.found, t.copied+n.copied, t.lost+n.lost
	t.last = max(t.last, n.last)
	if n.last > 2*time.Second {
		t.late++
	}
}

func takeAway(t *testing.T, take func(path, spare string) error, two, loaded bool, seed uint64) (sum tally) {
	path := filepath.Join(ramDir(t), "jobs.db")
	jobs := 10
	if loaded {
		jobs = -1
	}
	var all []*child
	for i := range 1 + map[bool]int{true: 1}[two] {
		p := part{Role: "keeper", DB: path, First: i * 1_000_000, Jobs: jobs, Pause: time.Millisecond, Workers: int(seed >> i & 1)}
		c := start(t, newLedger(), p)
		all = append(all, c)
		c.hears("ready")
	}
	spare := path + ".spare"
	for _, end := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(path + end) // which drops no lock of another process
		if err == nil {
			err = os.WriteFile(spare+end, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(time.Duration(seed>>8&0xff) * time.Millisecond)
	if err := take(path, spare); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var told []string
	for _, c := range all {
		told = append(told, c.hears("closed "))
		sum.last = time.Since(begin)
	}
	keys := map[int64]bool{}
	for _, c := range all {
		c.kill()
		for _, line := range c.kept {
			var key int64
			if _, err := fmt.Sscanf(line, "kept %d", &key); err == nil {
				keys[key] = true
			}
		}
	}
	sum.kept = len(keys)
	drop := func(path string) (n int) {
		db, err := raw(path)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer db.Close()
		rows, err := db.Query("SELECT id FROM errand_job")
		if err != nil {
			return 0
		}
		defer rows.Close()
		for rows.Next() {
			var key int64
			if err := rows.Scan(&key); err != nil {
				t.Error(err)
			}
			if keys[key] {
				delete(keys, key)
				n++
			}
		}
		return n
	}
	s, err := sqlite.Open(path, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = s.Close()
	}
	if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
	sum.found = drop(path)
	copies, err := filepath.Glob(path + "-saved-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range copies {
		if !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") {
			if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s has mode %v (%v)", name, info.Mode(), err)
			}
			if !strings.Contains(strings.Join(told, " "), name) {
				t.Errorf("nobody has told of %s: %q", name, told)
			}
			sum.copied += drop(name)
		}
	}
	if sum.lost = len(keys); sum.lost > 0 {
		t.Errorf("%d of %d acknowledged jobs are lost; told: %q", sum.lost, sum.kept, told)
	}
	return sum
}
