//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

func init() { roles["grouped"] = grouped }

// member is the Nth job of its group. If it is Doomed it dies until there is mercy.
type member struct {
	N      int
	Doomed bool
}

func (member) Kind() string { return "member" }

// receiver is the other side of the jobs of groups: files in a folder. It knows by
// itself whether two of a group are under way, since locks end with their process.
type receiver struct{ dir string }

func (r receiver) path(name string) string { return filepath.Join(r.dir, name) }

func (r receiver) complain(format string, args ...any) error {
	f, err := os.OpenFile(r.path("complaints"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// take is the work of one job: it notes the number of the last one that is done.
func (r receiver) take(group string, m member, work func() error) (err error) {
	f, err := os.OpenFile(r.path("group-"+group), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(err, r.complain("job %d of group %s is beside another", m.N, group))
	}
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // to its end
	last, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if last != m.N-1 && last != m.N { // the outcome of one that is done may be lost
		return r.complain("job %d of group %s comes after %d", m.N, group, last)
	}
	if err := work(); err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%-10d", m.N), 0)
	return err
}

func groupOptions(relaxed bool) *errand.Options {
	o := &errand.Options{
		Queues:    map[string]errand.QueueOptions{"default": {MaxDeaths: -1}},
		Policy:    policy.Policy{Retries: 1000, NoDelayRetries: 1, MinDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond},
		Retention: time.Hour,
		Logger:    slog.New(slog.DiscardHandler),
	}
	if relaxed {
		o.SQLite.Durability = errand.Relaxed
	}
	return o
}

// grouped is a program that works for groups. A fifth of its attempts fail.
func grouped(p part, v *voice) error {
	return worksFor(p, v, errand.WorkerOptions{LeaseDuration: time.Second}, func(w *errand.Worker, r receiver) {
		errand.Handle(w, func(_ context.Context, job *errand.Job[member]) error {
			return r.take(job.Group, job.Args, func() error {
				<-time.After(rand.N(2 * time.Millisecond))
				if _, err := os.Stat(r.path("mercy")); job.Args.Doomed && err != nil {
					return errand.Permanent(errors.New("doomed"))
				}
				if rand.N(5) == 0 {
					return errors.New("bad luck")
				}
				return nil
			})
		})
	})
}

// Processes are killed while they work for groups, in half of which a job dies. The dead
// keep the others of their groups back until they are redriven. In each group the
// jobs are done in the order in which they were enqueued, none beside another.
//
//errand:shows [order] | full relaxed | of three processes that work for groups one is killed, sixty times, while jobs fail and dead heads are redriven
func TestKill_Groups(t *testing.T) { inBoth(t, killGroups) }

func killGroups(t *testing.T, relaxed bool) {
	t.Parallel()
	groups, each := 20, 25
	if full() {
		groups, each = 100, 100
	}
	random := dice(t)
	crew := newCrew(t, 3, "grouped", relaxed, func(q *errand.Queue) {
		var jobs []errand.NewJob
		for n := range each {
			for g := range groups {
				jobs = append(jobs, errand.NewJob{
					Args:    member{N: n + 1, Doomed: n == each/2 && g%2 == 0},
					Options: &errand.JobOptions{Group: fmt.Sprint(g), Priority: random.IntN(3), Delay: time.Duration(random.IntN(3)) * time.Millisecond},
				})
			}
		}
		if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
	})
	kill := func(n int) {
		rounds(t, n, 10*n, func(int) {
			<-time.After(between(random, 50*time.Millisecond, 300*time.Millisecond))
			crew.kill(random.IntN(len(crew.all)))
		})
	}
	kill(4)
	quiet := func() {
		if b, err := os.ReadFile(crew.r.path("complaints")); err == nil {
			t.Fatalf("%d kills:\n%.2000s", crew.kills(), b)
		}
	}
	await(t, 2*time.Minute, "half of the groups wait for a dead job", func() bool {
		quiet()
		dead, _ := crew.count(errand.Dead)
		done, _ := crew.count(errand.Done)
		return dead == groups/2 && done == groups/2*each+groups/2*(each/2)
	})
	page, err := crew.q.Groups(t.Context(), nil)
	if err != nil || len(page.Groups) != groups/2 || page.Groups[0].Blocked != each-each/2-1 {
		t.Errorf("groups that wait: %+v, %v; want %d", page, err, groups/2)
	}
	if err := os.WriteFile(crew.r.path("mercy"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := crew.q.DeadLetters().Redrive(t.Context(), errand.JobFilter{All: true}, nil); r.Redriven != groups/2 || err != nil {
		t.Fatalf("redriven: %+v, %v", r, err)
	}
	kill(2)
	crew.finish(quiet)
	t.Logf("%d kills", crew.kills())
}

// wantRules checks the rules of the tables of a file that nobody has open.
func wantRules(t *testing.T, path string) {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if broken, err := sqlite.CheckInvariants(t.Context(), db); err != nil || len(broken) > 0 {
		t.Errorf("the rules that do not hold are %v, %v", broken, err)
	}
}
