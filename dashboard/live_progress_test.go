package dashboard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// How far a job has got is not committed. Viewers of the overview, of the workers and of the job see
// it every 2 s nevertheless, and others see no change.
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
		pages := []string{"", "workers", "job/" + id.String(), "groups"}
		var all []*tab
		for _, page := range pages {
			all = append(all, look(t, h, page))
		}
		time.Sleep(15500 * time.Millisecond)
		changed := func(what string, least, most int64) {
			t.Helper()
			for i, page := range pages[:3] {
				if n := all[i].changed.Swap(0); n < least || n > most {
					t.Errorf("%s: the viewer of %q saw %d changes", what, page, n)
				}
			}
			if n := all[3].changed.Swap(0); n > 0 {
				t.Errorf("%s: the viewer of the groups saw %d changes", what, n)
			}
		}
		changed("at first", 1, 10)
		store.taken()
		time.Sleep(20 * time.Second)
		changed("on the way", 8, 11)
		if reads := store.taken(); reads["workers"] > 60 || reads["stats"] > 0 {
			t.Errorf("reads in 20 s: %v", reads)
		}
		if !all[2].shows("letters") {
			t.Errorf("the job: %s", all[2].text)
		}
		time.Sleep(time.Minute)
		changed("to the end", 8, 31)
	})
}
