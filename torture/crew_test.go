//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// crew is some children that play the same part for one receiver, each under a number of
// its own. A child that is killed is replaced.
type crew struct {
	t     *testing.T
	q     *errand.Queue
	path  string
	r     receiver
	role  part
	all   []*child
	names []int // the First of each
	begun int
}

// newCrew starts n children on a new file, once enqueue has filled it.
func newCrew(t *testing.T, n int, role string, relaxed bool, enqueue func(q *errand.Queue)) *crew {
	t.Helper()
	path := filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, groupOptions(relaxed))
	if err != nil {
		t.Fatal(err)
	}
	enqueue(q)
	c := &crew{
		t: t, q: q, path: path, r: receiver{filepath.Dir(path)}, role: part{Role: role, DB: path, Relaxed: relaxed},
		all: make([]*child, n), names: make([]int, n),
	}
	for i := range c.all {
		c.begin(i)
	}
	return c
}

func (c *crew) begin(i int) {
	c.t.Helper()
	c.begun++
	p := c.role
	p.First = c.begun
	c.all[i], c.names[i] = start(c.t, newLedger(), p), p.First // of the ledger nothing is asked
}

// kill kills a child, and begins another. That is in the diary before, as nobody knows
// when the kernel is done with its files.
func (c *crew) kill(i int) {
	c.t.Helper()
	if err := c.r.write(fmt.Sprintf("kill %d", c.names[i])); err != nil {
		c.t.Fatal(err)
	}
	c.all[i].kill()
	c.begin(i)
}

func (c *crew) kills() int { return c.begun - len(c.all) }

// count returns how many jobs are in a state, and in all.
func (c *crew) count(state errand.State) (n, all int) {
	c.t.Helper()
	counts, err := c.q.Counts(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, one := range counts {
		if all += int(one.N); one.State == state {
			n += int(one.N)
		}
	}
	return n, all
}

// finish waits until all jobs are done, ends the children and checks the file. look is
// called again and again meanwhile.
func (c *crew) finish(look func()) {
	c.t.Helper()
	await(c.t, 2*time.Minute, "all jobs are done", func() bool {
		look()
		done, all := c.count(errand.Done)
		return done == all
	})
	for _, one := range c.all {
		one.hears("ready")
		one.finishSoon(time.Minute)
	}
	look()
	if err := c.q.Close(); err != nil {
		c.t.Error(err)
	}
	wantRules(c.t, c.path)
}

// worksFor is the program of a crew: handle registers the handler, until the child is to
// end.
func worksFor(p part, v *voice, o errand.WorkerOptions, handle func(w *errand.Worker, r receiver)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(context.Background(), p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	o.MaxCrashes = 1_000_000
	w := errand.NewWorker(q, &o)
	handle(w, receiver{filepath.Dir(p.DB)})
	v.say("ready")
	if err := w.Run(ctx); err != nil {
		return err
	}
	return q.Close()
}

// write adds a line to the receiver's diary. All programs see the lines in one order.
func (r receiver) write(line string) error {
	f, err := os.OpenFile(r.path("diary"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}
