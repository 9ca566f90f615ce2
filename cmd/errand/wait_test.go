package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// The exit status says what became of the jobs, and the output which.
func TestWait_statuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	ids, err := fixture(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, "jobs", "cancel", path, ids["SCHEDULED"])
	const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
	done, cancelled, dead, ready := ids["DONE"], ids["SCHEDULED"], ids["DEAD"], ids["READY"]
	for _, c := range []struct {
		ids    []string
		status int
		states []queue.State
		gone   int
	}{
		{[]string{done}, 0, []queue.State{queue.Done}, 0},
		{[]string{done, done}, 0, []queue.State{queue.Done}, 0},
		{[]string{cancelled, done}, statusCancelled, []queue.State{queue.Cancelled, queue.Done}, 0},
		{[]string{dead}, statusDead, []queue.State{queue.Dead}, 0},
		{[]string{unknown, done}, statusFindings, []queue.State{queue.Done}, 1},
		{[]string{unknown}, statusFindings, nil, 1},
		{[]string{ready, cancelled, unknown}, statusLeft, []queue.State{queue.Ready, queue.Cancelled}, 1},
		{[]string{ready, dead}, statusDead, []queue.State{queue.Ready, queue.Dead}, 0},
	} {
		args := append([]string{"jobs", "wait", path, "--timeout", "1ms"}, c.ids...)
		status, out, errs := errand(t, "", args...)
		if status != c.status || errs != "" {
			t.Errorf("%q: status %d, want %d: %s", c.ids, status, c.status, errs)
		}
		for i, id := range c.ids {
			if at := slices.Index(c.ids, id); at == i && strings.Count(out, id) != 1 {
				t.Errorf("%q: %s", c.ids, out)
			}
		}
		_, out, _ = errand(t, "", append(args, "--json")...)
		var got struct {
			queue.JobPage
			NotFound []queue.ID `json:"not_found"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		var states []queue.State
		for _, j := range got.Jobs {
			states = append(states, j.State)
		}
		if !slices.Equal(states, c.states) || len(got.NotFound) != c.gone || got.Jobs == nil {
			t.Errorf("%q: %s", c.ids, out)
		}
	}
	for _, args := range [][]string{
		{path}, {path, "x"}, {path, done, "--timeout", "-1s"}, {filepath.Join(t.TempDir(), "missing.db"), done},
	} {
		if status, out, errs := errand(t, "", append([]string{"jobs", "wait"}, args...)...); status != statusUnusable || out != "" || errs == "" {
			t.Errorf("%q: status %d: %s%s", args, status, out, errs)
		}
	}
}

// The help has the statuses in the order in which the worst counts.
func TestWait_worst(t *testing.T) {
	states := map[int]queue.State{
		statusDead: queue.Dead, statusLeft: queue.Blocked, statusExpired: queue.Expired, statusCancelled: queue.Cancelled, 0: queue.Done,
	}
	w := &waiting{found: map[queue.ID]queue.JobInfo{}}
	for i, status := range slices.Backward(worst) {
		if state, ok := states[status]; ok {
			w.found[queue.ID{byte(i)}] = queue.JobInfo{State: state}
		} else {
			w.gone = []queue.ID{{byte(i)}}
		}
		if got := w.status(); got != status {
			t.Errorf("with a job whose status is %d: status %d", status, got)
		}
	}
	_, help, _ := errand(t, "", "jobs", "wait", "--help")
	var listed []int
	for line := range strings.Lines(help) {
		var status int
		if digit, _, ok := strings.Cut(strings.TrimPrefix(line, "  "), "    "); ok && len(digit) == 1 && json.Unmarshal([]byte(digit), &status) == nil {
			listed = append(listed, status)
		}
	}
	if !slices.Equal(listed, worst) {
		t.Errorf("the help lists %v, want %v:\n%s", listed, worst, help)
	}
}

// watched is a store that calls before with the number of each look at a job.
type watched struct {
	*sqlite.Store
	looks  int
	before func(look int, id storage.ID) error
}

func (s *watched) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	s.looks++
	if err := s.before(s.looks, id); err != nil {
		return storage.Record{}, err
	}
	return s.Store.Job(ctx, id)
}

// waitingFor returns two jobs that wait in a queue. Looks at jobs call before.
func waitingFor(t *testing.T, before func(q *queue.Queue, w *waiting, look int, id storage.ID) error) (*queue.Queue, *waiting) {
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &watched{Store: file}
	q, err := queue.New(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	w := &waiting{}
	for range 2 {
		e, err := q.Enqueue(t.Context(), raw(`{}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.ids = append(w.ids, e.ID)
	}
	s.before = func(look int, id storage.ID) error { return before(q, w, look, id) }
	return q, w
}

// It ends when the last job has ended, does not look again at one that has, and goes on when
// others begin to write, or have died while they wrote.
func TestWait_ends(t *testing.T) {
	nothing := func(*queue.Queue, *waiting, storage.ID) error { return nil }
	cancel := func(q *queue.Queue, id queue.ID) error {
		_, err := q.CancelAll(t.Context(), queue.JobFilter{IDs: []queue.ID{id}})
		return err
	}
	end := []func(q *queue.Queue, w *waiting, id storage.ID) error{
		nothing,
		nothing,
		func(q *queue.Queue, w *waiting, _ storage.ID) error { return cancel(q, w.ids[0]) },
		func(*queue.Queue, *waiting, storage.ID) error { return storage.ErrBusy },
		func(_ *queue.Queue, w *waiting, id storage.ID) error {
			if id != w.ids[1] {
				t.Errorf("it looks at %v, want only the second of %v", id, w.ids)
			}
			return storage.ErrNeedsRecovery
		},
		func(q *queue.Queue, w *waiting, _ storage.ID) error { // both go now: the first has been seen to end
			err := cancel(q, w.ids[1])
			_, gone := q.Delete(t.Context(), queue.JobFilter{IDs: w.ids})
			return errors.Join(err, gone)
		},
	}
	looks := 0
	q, w := waitingFor(t, func(q *queue.Queue, w *waiting, look int, id storage.ID) error {
		looks = look
		return end[look-1](q, w, id)
	})
	if err := w.wait(t.Context(), q); err != nil || looks != len(end) {
		t.Fatalf("%v, after %d looks", err, looks)
	}
	if w.found[w.ids[0]].State != queue.Cancelled || !slices.Equal(w.gone, w.ids[1:]) || w.status() != statusCancelled {
		t.Errorf("%v, not there: %v, status %d", w.found, w.gone, w.status())
	}
}

// What keeps the first look from being made, and any other error, ends it.
func TestWait_fails(t *testing.T) {
	for _, c := range []struct {
		look int
		err  error
	}{{1, storage.ErrBusy}, {1, storage.ErrNeedsRecovery}, {3, storage.ErrCorrupt}} {
		q, w := waitingFor(t, func(_ *queue.Queue, _ *waiting, look int, _ storage.ID) error {
			if look < c.look {
				return nil
			}
			return c.err
		})
		if err := w.wait(t.Context(), q); !errors.Is(err, c.err) {
			t.Errorf("%v of look %d: %v", c.err, c.look, err)
		}
	}
}

func TestWait_interrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	q, w := waitingFor(t, func(_ *queue.Queue, _ *waiting, look int, _ storage.ID) error {
		if look == 3 {
			interrupt()
		}
		return nil
	})
	if err := w.wait(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	ids, err := fixture(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	var out, errs strings.Builder
	status := run(ctx, []string{"jobs", "wait", path, ids["READY"]}, strings.NewReader(""), &out, &errs)
	// Under load it is interrupted as it opens the file, whose name the error has then.
	if said := strings.Replace(errs.String(), path+": ", "", 1); status != statusInterrupted || out.Len() > 0 || said != "errand: interrupted\n" {
		t.Errorf("status %d: %s%s", status, out.String(), errs.String())
	}
}
