package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// If more jobs match than were confirmed, it is asked again, with the number that there was.
func TestAct_more(t *testing.T) {
	q := open(t)
	h := admin(q)
	ids := []errand.ID{add(t, q, mail{"a"}, nil)}
	f := asks(t, h, url.Values{"do": {"cancel"}, "queue": {"default"}}, "Cancel 1 job in queue default?")
	for range 11 {
		ids = append(ids, add(t, q, mail{"b"}, nil))
	}
	f = asks(t, h, f, "You were asked about 1. More match now", "12 jobs in queue default?")
	if bulks, err := q.Bulks(t.Context()); err != nil || len(bulks) > 0 {
		t.Fatalf("%+v, %v", bulks, err)
	}
	// Ten samples are shown.
	a := send(h, url.Values{"do": {"cancel"}, "queue": {"default"}})
	if n := strings.Count(a.text, `<td class="main"><a class="id"`); n != 10 {
		t.Errorf("%d samples: %s", n, a.text)
	}
	if _, err := q.Cancel(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	confirm(t, h, f, "A bulk job was started for 11 jobs in queue default.")
}

// The jobs of a group are asked about and taken, and no others.
func TestAct_group(t *testing.T) {
	q := open(t)
	h := admin(q)
	in := func(group string) errand.ID {
		return add(t, q, mail{"a"}, &errand.JobOptions{Group: group, Delay: time.Hour})
	}
	mine, other := []errand.ID{in("ann"), in("ann")}, in("bob")
	if _, text := get(h, "/jobs?queue=default&group=ann"); !strings.Contains(text, "With all that match") {
		t.Errorf("no action on the jobs of a group: %s", text)
	}
	a := send(h, url.Values{"do": {"cancel"}, "queue": {"default"}, "group": {"ann"}})
	if n := strings.Count(a.text, `<td class="main"><a class="id"`); n != 2 {
		t.Errorf("%d samples: %s", n, a.text)
	}
	f := asks(t, h, url.Values{"do": {"cancel"}, "queue": {"default"}, "group": {"ann"}}, "2 jobs in queue default, of group ann?")
	confirm(t, h, f, "A bulk job was started for 2 jobs in queue default, of group ann.")
	bulks, err := q.Bulks(t.Context())
	if err != nil || len(bulks) != 1 {
		t.Fatal(bulks, err)
	}
	serve(t, q, bulks[0].ID)
	for _, id := range append(mine, other) {
		want := errand.Cancelled
		if id == other {
			want = errand.Scheduled
		}
		if j, err := q.Job(t.Context(), id); err != nil || j.State != want {
			t.Errorf("a job is %s, want %s; %v", j.State, want, err)
		}
	}
}

// Other jobs than were shown are asked about anew, though they are as many. Those that were shown
// may be gone.
func TestAct_others(t *testing.T) {
	q := open(t)
	h := admin(q)
	ids := make([]errand.ID, 12)
	for i := range ids {
		ids[i] = add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour})
	}
	cancel := func(ids ...errand.ID) {
		t.Helper()
		for _, id := range ids {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := func(ids ...errand.ID) {
		t.Helper()
		if n, err := q.Delete(t.Context(), errand.JobFilter{IDs: ids}); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
	}
	all := url.Values{"do": {"delete"}, "state": {"cancelled"}}
	cancel(ids[0], ids[1])
	f := asks(t, h, all, "Delete 2 cancelled jobs?", ">Delete 2 jobs<", ">Keep them<")
	gone(ids[0])
	cancel(ids[2])
	f = asks(t, h, f, "What has changed meanwhile", ids[0].String(), ids[2].String())
	gone(ids[1])
	confirm(t, h, f, "A bulk job was started for 1 cancelled job.")
	cancel(ids[3:]...)
	f = asks(t, h, all, "Delete 10 cancelled jobs?")
	for range 5 {
		cancel(add(t, q, mail{"b"}, nil))
	}
	f = asks(t, h, f, "You were asked about 10. More match now", "Delete 15 cancelled jobs?")
	gone(ids[2:8]...)
	confirm(t, h, f, "A bulk job was started for 9 cancelled jobs.")
}

// A job that has ended after it was asked whether such jobs are to be deleted stays.
func TestAct_endedLater(t *testing.T) {
	q := open(t)
	h := admin(q)
	add12 := func() (ids []errand.ID) {
		for range 12 {
			id := add(t, q, mail{"a"}, nil)
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	before := add12()
	for name, form := range map[string]url.Values{"all": {}, "some": {"state": {"cancelled"}}, "bounded": {"ended_before": {"2100-01-01"}}} {
		form.Set("do", "delete")
		f := asks(t, h, form, "Delete 12 ")
		if _, err := q.Delete(t.Context(), errand.JobFilter{IDs: before}); err != nil {
			t.Fatal(err)
		}
		after := add12()
		confirm(t, h, f, "A bulk job was started for 12 ")
		bulks, err := q.Bulks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		serve(t, q, bulks[0].ID)
		for _, id := range after {
			if state(t, q, id) != errand.Cancelled {
				t.Errorf("%s: job %s is deleted", name, id)
			}
		}
		before = after
	}
}

// serve has a worker do a bulk job.
func serve(t *testing.T, q *errand.Queue, id errand.ID) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"errand.bulk"}, Logger: quiet})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	_, err := errand.Await[json.RawMessage](ctx, q, id)
	stop()
	if stopped := <-ended; !errors.Is(err, errand.ErrNoResult) || stopped != nil {
		t.Fatal(err, stopped)
	}
}

// The number of jobs with a tag is not kept: some jobs are looked at, and the page says how many of
// these match.
func TestAct_looked(t *testing.T) {
	q := open(t)
	h := admin(q)
	fill := func(n int, o *errand.JobOptions) {
		jobs := make([]errand.NewJob, n)
		for i := range jobs {
			jobs[i] = errand.NewJob{Args: mail{"a"}, Options: o}
		}
		if _, err := q.EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
	}
	tagged := url.Values{"do": {"cancel"}, "tag": {"odd"}}
	fill(100, &errand.JobOptions{Tags: []string{"odd"}})
	f := asks(t, h, tagged, "Cancel 100 jobs with the tag odd?", ">Cancel 100 jobs<")
	fill(200, &errand.JobOptions{Tags: []string{"odd"}})
	fill(1710, &errand.JobOptions{Tags: []string{"odd"}, Queue: "other"})
	f = asks(t, h, f, "You were asked about 100. More match now", "Cancel all jobs with the tag odd?", "There are at least 250; the others were not counted. All that match will be taken.", ">Cancel them<")
	asks(t, h, url.Values{"do": {"cancel"}, "tag": {"odd"}, "queue": {"none"}, "state": {"ready"}}, "Cancel all ready jobs in queue none, with the tag odd?", "How many there are is not known: none was among the jobs looked at first.")
	asks(t, h, url.Values{"do": {"cancel"}}, "Cancel 2,010 jobs of all queues?")
	confirm(t, h, f, "A bulk job was started for all jobs with the tag odd")
}

func (s slow) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	if f.Error == "" {
		return s.Store.Jobs(ctx, f, after, limit)
	}
	<-ctx.Done()
	return storage.Page{}, ctx.Err()
}

// Jobs that cannot be counted in time can be chosen all the same: the page says that.
func TestAct_uncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := errand.New(t.Context(), slow{storagetest.NewMemory().Open()}, &errand.Options{Logger: quiet, Clock: func() time.Time { return time.Now().AddDate(30, 0, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		h := admin(q)
		f := asks(t, h, url.Values{"do": {"redrive"}, "error": {"timeout"}}, "Redrive all jobs whose error contains “timeout”?", "could not be counted within 1 s, as each job has to be looked at")
		if f.Get("sure") != "0+" {
			t.Errorf("the form has %v", f)
		}
	})
}

// Marked jobs are changed by a bulk job, but for those that have ended meanwhile.
func TestAct_marked(t *testing.T) {
	q := open(t)
	h := admin(q)
	form := url.Values{"do": {"cancel"}, "which": {"marked"}}
	if a := send(h, form); a.status != 400 || !strings.Contains(a.text, "No job is marked.") || !strings.Contains(a.text, "Mark some in the list first.") {
		t.Errorf("of none: %d %s", a.status, a.text)
	}
	for range 3 {
		form.Add("id", add(t, q, mail{"a"}, nil).String())
	}
	id, err := errand.ParseID(form.Get("id"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	f := asks(t, h, form, "2 jobs that you have marked?", "1 marked job cannot be cancelled, and will be left as it is.")
	confirm(t, h, f, "A bulk job was started for 2 jobs that you have marked.")
	for _, s := range form["id"][1:] {
		if id, err = errand.ParseID(s); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	says(t, send(h, form).text, "None of the 3 marked jobs is scheduled or ready or blocked or running any more.")
}
