package apitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// In each group jobs end in the order in which they were enqueued, none beside another,
// while attempts fail, snooze and are put off.
func TestGroups_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: &policy.Policy{Retries: 5, MinDelay: time.Second, MaxDelay: time.Minute}})
		const groups, each = 7, 20
		var mu sync.Mutex
		running, ended := map[string]bool{}, map[string][]int{}
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 8})
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			mu.Lock()
			if running[job.Group] {
				t.Errorf("two of group %s run at a time", job.Group)
			}
			running[job.Group] = true
			mu.Unlock()
			time.Sleep(time.Duration(job.Args.N%5) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			running[job.Group] = false
			switch {
			case job.Args.N%3 == 0 && job.Attempt == 1:
				return errors.New("timeout")
			case job.Args.N%4 == 0 && job.Snoozes == 0:
				return errand.Snooze(10*time.Second, nil)
			}
			ended[job.Group] = append(ended[job.Group], job.Args.N)
			return nil
		})
		for i := range each {
			for g := range groups {
				enqueue(t, q, note{N: i}, &errand.JobOptions{Group: fmt.Sprint(g), Priority: (i*7 + g) % 5})
			}
		}
		stop := run(t, w)
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for g := range groups {
			if got := ended[fmt.Sprint(g)]; len(got) != each || !slices.IsSorted(got) {
				t.Errorf("group %d ended in the order %v", g, got)
			}
		}
	})
}

// A name that is too long or not text is refused, and nothing is written.
func TestGroups_Names(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	for name, fault := range map[string]string{
		strings.Repeat("g", 256): "", "a b ü": "",
		strings.Repeat("g", 257): "group", "a\x00b": "group", "a\xffb": "group",
	} {
		_, err := q.Enqueue(t.Context(), note{}, &errand.JobOptions{Group: name})
		wantField(t, err, fault)
		_, err = q.SkipHead(t.Context(), "default", name)
		if fault == "" && !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("SkipHead of %.10q: %v, want ErrNotFound", name, err)
		}
		if fault != "" {
			wantField(t, err, fault)
		}
	}
	_, err := q.SkipHead(t.Context(), "a b", "")
	wantField(t, err, "queue")
	_, err = q.Groups(t.Context(), &errand.GroupOptions{Queue: "a b"})
	wantField(t, err, "queue")
	_, err = q.Groups(t.Context(), &errand.GroupOptions{Limit: 1001})
	wantField(t, err, "limit")
	page, err := q.Jobs(t.Context(), errand.JobFilter{}, &errand.ListOptions{Limit: 1})
	if err != nil || len(page.Jobs) != 1 {
		t.Fatal(page, err)
	}
	if _, err = q.Groups(t.Context(), &errand.GroupOptions{After: page.Next}); err == nil {
		t.Error("the Next of a page of jobs was taken for one of groups")
	}
	if all, err := q.Jobs(t.Context(), errand.JobFilter{}, nil); err != nil || len(all.Jobs) != 2 {
		t.Errorf("%d jobs, want the 2 that were not refused (%v)", len(all.Jobs), err)
	}
}

// wantField checks that err is about a field, or nil for "".
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var fault *errand.FieldError
	if field == "" && err != nil || field != "" && (!errors.As(err, &fault) || fault.Field != field) {
		t.Errorf("error %v, want one about %q", err, field)
	}
}

// Pages of groups go on where the one before has ended.
func TestGroups_Pages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		for _, g := range []string{"c", "a", "b", "a"} {
			enqueue(t, q, note{}, &errand.JobOptions{Group: g})
		}
		stop := run(t, w)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var got []string
		o := errand.GroupOptions{Limit: 2}
		for {
			page, err := q.Groups(t.Context(), &o)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range page.Groups {
				got = append(got, fmt.Sprintf("%s %d %s %s", g.Group, g.Blocked, g.Reason, g.Error))
			}
			if o.After = page.Next; o.After == "" {
				break
			}
		}
		if want := []string{"a 1 permanent no", "b 0 permanent no", "c 0 permanent no"}; !slices.Equal(got, want) {
			t.Errorf("groups %q, want %q", got, want)
		}
	})
}

// What waits behind dead jobs is a reason of the health, which leaves the queue ready, until
// somebody decides about each of them.
func TestGroups_Health(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "pairs"}})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		if err := q.Configure(t.Context(), errand.Lane{Queue: "pairs"}, errand.Settings{GroupLimit: new(2)}); err != nil {
			t.Fatal(err)
		}
		for _, g := range []string{"c", "a", "b", "a", "a", "b"} {
			enqueue(t, q, note{}, &errand.JobOptions{Group: g})
			enqueue(t, q, note{}, &errand.JobOptions{Group: g, Queue: "pairs"})
		}
		is := func(what string, want ...storage.BehindDead) {
			t.Helper()
			h := q.Health(t.Context(), nil)
			var reasons []storage.BehindDead
			for _, r := range h.Reasons {
				if r.Code == errand.HealthClock { // the year is 2000
					continue
				}
				if r.Code != errand.HealthDeadHead {
					t.Errorf("%s, the health is %+v", what, h)
				}
				reasons = append(reasons, storage.BehindDead{Queue: r.Queue, Groups: int(r.Groups), Jobs: int(r.Jobs), Since: r.Since.UTC(), More: r.More})
				if !strings.Contains(r.Text, fmt.Sprintf("jobs that wait: %d, groups: %d", r.Jobs, r.Groups)) {
					t.Errorf("%s, the text is %q", what, r.Text)
				}
			}
			if !h.Live || !h.Ready || !slices.Equal(reasons, want) {
				t.Errorf("%s, the health is %+v, want ready, and %+v", what, h, want)
			}
		}
		is("before any died")
		at := time.Now().UTC().Truncate(0)
		stop := run(t, w)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		is("after some died", storage.BehindDead{Queue: "default", Groups: 2, Jobs: 3, Since: at})
		for _, left := range []storage.BehindDead{{Queue: "default", Groups: 1, Jobs: 1, Since: at}, {}} {
			page, err := q.Groups(t.Context(), &errand.GroupOptions{Limit: 1, Queue: "default"})
			if err != nil || len(page.Groups) != 1 {
				t.Fatalf("groups %+v, %v", page, err)
			}
			if _, err := q.SkipHead(t.Context(), "default", page.Groups[0].Group); err != nil {
				t.Fatal(err)
			}
			if left == (storage.BehindDead{}) {
				is("after all were skipped")
			} else {
				is("after one was skipped", left)
			}
		}
	})
}

// Why says what a blocked job waits for.
func TestWhy_Blocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		o := &errand.JobOptions{Group: "g", Delay: time.Hour}
		head, second, third := enqueue(t, q, note{}, o), enqueue(t, q, note{}, o), enqueue(t, q, note{}, o)
		stop := run(t, w)
		r := wantWhy(t, q, second, "blocked").Reasons[0]
		if r.N != 1 || r.Job != head || !strings.Contains(r.Text, `behind 1 job of its group "g", whose head is `+head.String()+", which is scheduled") {
			t.Errorf("the second waits for %+v", r)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		r = wantWhy(t, q, third, "blocked").Reasons[0]
		if r.N != 2 || r.Job != head || r.Reason != "permanent" || r.Since.IsZero() || !strings.Contains(r.Text, "dead as permanent") {
			t.Errorf("the third waits for %+v", r)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Why tells the places of a group with several from its head, and says of a job behind a
// unique key that it is.
func TestWhy_BlockedOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{GroupLimit: new(2)}); err != nil {
			t.Fatal(err)
		}
		o := &errand.JobOptions{Group: "g"}
		first, _, third, fourth := enqueue(t, q, note{}, o), enqueue(t, q, note{}, o), enqueue(t, q, note{}, o), enqueue(t, q, note{}, o)
		for i, id := range []errand.ID{third, fourth} {
			r := wantWhy(t, q, id, "blocked").Reasons[0]
			want := `2 jobs of its group "g" run or are ready, as many as may, and ` + []string{"no job waits", "1 job waits"}[i] + " before it: the first is " + first.String() + ", which is ready"
			if r.N != i || r.Of != 2 || r.Job != first || r.Text != want {
				t.Errorf("%+v, want %q", r, want)
			}
		}
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[ping]) error { <-ctx.Done(); return nil })
		run(t, w)
		o = &errand.JobOptions{Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{Mode: errand.After}}}
		holder := enqueue(t, q, ping{}, o)
		synctest.Wait()
		r := wantWhy(t, q, enqueue(t, q, ping{}, o), "blocked").Reasons[0]
		if want := "it is behind the job that holds its unique key, " + holder.String() + ", which is running"; r.N != 1 || r.Of != 0 || r.Job != holder || r.Text != want {
			t.Errorf("%+v, want %q", r, want)
		}
	})
}

// As many jobs of a group run at a time as the setting says, whether they fail or not, and
// more once it is raised.
func TestGroups_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{
			Policy: &policy.Policy{Retries: 3, MinDelay: time.Second, MaxDelay: time.Second},
			Queues: map[string]errand.QueueOptions{"default": {Settings: errand.Settings{GroupLimit: new(3)}}},
		})
		var mu sync.Mutex
		running, most, done := 0, 0, 0
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 16})
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			running--
			if job.Args.N%2 == 0 && job.Attempt == 1 {
				return errors.New("timeout")
			}
			done++
			return nil
		})
		seen := func() (atOnce, ended int) {
			mu.Lock()
			defer mu.Unlock()
			return most, done
		}
		stop := run(t, w)
		synctest.Wait() // the settings are written
		for i := range 30 {
			enqueue(t, q, note{N: i}, &errand.JobOptions{Group: "g"})
		}
		time.Sleep(5 * time.Minute)
		if n, _ := seen(); n != 3 {
			t.Errorf("%d ran at a time, want 3", n)
		}
		if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{GroupLimit: new(5)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n, ended := seen(); n != 5 || ended != 30 {
			t.Errorf("%d ran at a time, want 5; %d are done, want 30", n, ended)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{GroupLimit: new(1001)})
		wantField(t, err, "group_limit")
		err = q.Configure(t.Context(), errand.Lane{}, errand.Settings{DeadHead: new(errand.PassDead)})
		wantField(t, err, "dead_head")
		err = q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{DeadHead: new(errand.DeadHead(2))})
		wantField(t, err, "dead_head")
	})
}

// Jobs that are ready when the limit is lowered do not start beside each other.
func TestGroups_LimitLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		limit := func(n int) {
			if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{GroupLimit: new(n)}); err != nil {
				t.Fatal(err)
			}
		}
		limit(5)
		for i := range 5 {
			enqueue(t, q, note{N: i}, &errand.JobOptions{Group: "g"})
		}
		limit(1)
		var running, most, done atomic.Int64
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 16})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Minute)
			running.Add(-1)
			done.Add(1)
			return nil
		})
		stop := run(t, w)
		time.Sleep(time.Hour)
		if most.Load() != 1 || done.Load() != 5 {
			t.Errorf("%d ran at a time, want 1; %d are done, want 5", most.Load(), done.Load())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// All groups in which jobs wait are listed, page by page, whatever their heads do.
func TestGroups_Waiting(t *testing.T) {
	g := newGraveyard(t)
	g.bury(note{}, &errand.JobOptions{Group: "c"}, errand.ReasonExhausted, "x")
	for _, group := range []string{"a", "b", "c", "a", "b", "a", "alone"} {
		enqueue(t, g.Queue, note{}, &errand.JobOptions{Group: group})
	}
	var got []string
	o := &errand.GroupOptions{Waiting: true, Limit: 1}
	for {
		page, err := g.Groups(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Groups {
			got = append(got, fmt.Sprint(b.Group, " ", b.Blocked, " ", b.State, " ", b.Reason))
			if j := lookUp(t, g.Queue, b.Head); j.State != b.State || j.Group != b.Group || !j.EndedAt.Equal(b.DiedAt) {
				t.Errorf("the head of %+v is %+v", b, j)
			}
		}
		if page.Next == "" {
			break
		}
		if _, err := g.Groups(t.Context(), &errand.GroupOptions{After: page.Next}); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("the place of another list is taken: %v", err)
		}
		o.After = page.Next
	}
	if want := []string{"a 2 ready ", "b 1 ready ", "c 1 dead exhausted"}; !slices.Equal(got, want) {
		t.Errorf("groups are %q, want %q", got, want)
	}
}

// looksCut is a store whose BehindDead did not look at all groups.
type looksCut struct {
	storage.Store
	found []storage.BehindDead
}

func (s *looksCut) BehindDead(context.Context, string, int) ([]storage.BehindDead, error) {
	return append(slices.Clone(s.found), storage.BehindDead{More: true}), nil
}

// Health says that not all groups were looked at, whether or not some were found before.
func TestHealth_DeadHead_notAllLookedAt(t *testing.T) {
	found := make([]storage.BehindDead, 100)
	for i := range found {
		found[i] = storage.BehindDead{Queue: fmt.Sprintf("q%03d", i), Groups: 1, Jobs: 1, Since: time.Now()}
	}
	for _, n := range []int{0, 1, 100} {
		q, err := errand.New(t.Context(), &looksCut{storagetest.NewMemory().Open(), found[:n]}, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		h := q.Health(t.Context(), nil)
		if !h.Ready || len(h.Reasons) != n+1 {
			t.Fatalf("after %d queues the health is %+v, want ready, and one further reason", n, h)
		}
		last := h.Reasons[n]
		if text := last.Text; !strings.Contains(text, "jobs of more queues may wait") {
			t.Errorf("after %d queues the text is %q", n, text)
		}
		if last.Text = ""; last != (errand.HealthReason{Code: errand.HealthDeadHead, More: true}) {
			t.Errorf("after %d queues the last reason is %+v", n, last)
		}
	}
}
