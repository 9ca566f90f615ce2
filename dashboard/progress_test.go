package dashboard_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// How far a job has got is not committed. Viewers of the overview, of the workers and of the job are
// told of it every 2 s nevertheless, others are not, and none once it gets no further.
func TestLive_progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		w := errand.NewWorker(q, &errand.WorkerOptions{Grace: time.Millisecond, Logger: quiet})
		errand.Handle(w, func(ctx context.Context, job *errand.Job[mail]) error {
			for i := range int64(60) {
				job.Progress(i, 60, "letters")
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
				}
			}
			<-ctx.Done()
			return ctx.Err()
		})
		defer runs(t, w)()
		id := store.commit(t, q)
		time.Sleep(3 * time.Second)
		h := viewers(q, nil)
		pages := []string{"", "workers", "job/" + id.String(), "jobs"}
		var all []*stream
		for i, page := range pages {
			all = append(all, look(t, h, page, func() { get(h, "/"+page) }))
			defer func() { all[i].stop(); <-all[i].ended }()
		}
		time.Sleep(15500 * time.Millisecond)
		told := func(what string, least, most int64) {
			t.Helper()
			for i, page := range pages[:3] {
				if n := all[i].changed.Swap(0); n < least || n > most {
					t.Errorf("%s: the viewer of %q was told %d times", what, page, n)
				}
			}
			if n := all[3].changed.Swap(0); n > 0 {
				t.Errorf("%s: the viewer of jobs was told %d times", what, n)
			}
		}
		told("at first", 1, 10)
		store.taken()
		time.Sleep(20 * time.Second)
		told("on the way", 8, 11)
		if reads := store.taken(); reads["workers"] > 60 || reads["stats"] > 0 {
			t.Errorf("reads in 20 s: %v", reads)
		}
		if _, page := get(h, "/job/"+id.String()); !strings.Contains(plain(page), "letters") {
			t.Errorf("the job: %s", plain(page))
		}
		time.Sleep(time.Minute)
		told("to the end", 8, 20)
		time.Sleep(time.Minute)
		told("further no more", 0, 0)
	})
}
