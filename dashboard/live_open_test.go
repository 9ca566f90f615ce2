package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// What changes on the page of a job beside its row is there within 10 s, and until then the page does not
// say that it shows the newest.
func TestLive_besideRow(t *testing.T) {
	for name, quiet := range map[string]time.Duration{"just opened": 0, "open for long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { besideRow(t, quiet) })
		})
	}
}

func besideRow(t *testing.T, quiet time.Duration) {
	store, q := counted(t)
	defer q.Close()
	h := viewers(q, nil)
	add(t, q, letter{"first", ""}, &errand.JobOptions{Group: "g"})
	dead := die(t, q, "g")
	waits := store.commit(t, q)
	pages := map[*tab]string{look(t, h, "job/"+dead.String()): "1 job waits behind it", look(t, h, "job/"+waits.String()): " is paused"}
	time.Sleep(quiet)
	add(t, q, letter{"second", ""}, &errand.JobOptions{Group: "g"})
	if err := q.Pause(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	store.version.Add(1)
	changed := time.Now()
	for range 10 {
		time.Sleep(time.Second)
		synctest.Wait()
		for b, want := range pages {
			if b.newest().After(changed) && !b.shows(want) {
				t.Errorf("it says that it shows what was %v after the change", b.newest().Sub(changed))
			}
		}
	}
	for b, want := range pages {
		if !b.shows(want) {
			t.Errorf("10 s after the change there is no %q: %s", want, b.text)
		}
	}
}

// A hold shows on the pages of fifty jobs that it keeps back within half a minute, while something else is
// committed each second and all pages together cost no more reads.
func TestLive_heldAmongMany(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		many := make([]*tab, 50)
		for i := range many {
			many[i] = look(t, h, "job/"+store.commit(t, q).String())
		}
		commits := func(n int) {
			for range n {
				add(t, q, letter{"a", ""}, &errand.JobOptions{Queue: "other"})
				store.version.Add(1)
				time.Sleep(time.Second)
			}
		}
		commits(60)
		if err := q.Pause(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		commits(30)
		for i, b := range many {
			if !b.shows(" is paused") {
				t.Errorf("page %d: %s", i, b.text)
			}
		}
	})
}

// A page says that it shows the newest as of when the version was asked for, not of when it is told.
func TestLive_age(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		for _, at := range []string{"", "groups"} {
			part(h, at, "")
			time.Sleep(3 * time.Second)
			part(h, at, "")
			time.Sleep(700 * time.Millisecond)
			if age := part(h, at, "").Header().Get("Errand-Age"); age != "700" {
				t.Errorf("%q is %s ms old, want 700", at, age)
			}
			time.Sleep(time.Second)
		}
	})
}

// A viewer who goes while the version is asked for spoils it for no other.
func TestLive_goneEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		get(h, "/groups", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if w := part(h, "groups", ""); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// Of a job that was deleted nothing is read until something is committed.
func TestLive_deleted(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		gone := "job/" + (errand.ID{1}).String()
		for range 10 {
			if w := part(h, gone, ""); w.Code != 404 {
				t.Errorf("%d", w.Code)
			}
			time.Sleep(2 * time.Second)
		}
		if reads := store.taken(); reads["job"] != 1 {
			t.Errorf("reads: %v", reads)
		}
		store.version.Add(1)
		time.Sleep(2 * time.Second)
		if part(h, gone, ""); store.taken()["job"] != 1 {
			t.Error("it was not read after a commit")
		}
	})
}

// A page that panics says so, and is rendered again after a minute.
func TestLive_panics(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.panics.Store(true)
		for range 10 {
			if w := part(h, "groups", ""); w.Code != 500 {
				t.Errorf("%d", w.Code)
			}
			time.Sleep(2 * time.Second)
		}
		if reads := store.taken(); reads["groups"] != 1 {
			t.Errorf("reads: %v", reads)
		}
		store.panics.Store(false)
		time.Sleep(time.Minute)
		if w := part(h, "groups", ""); w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
	})
}

// While a job is scheduled and a worker runs that could take it, pages are not rendered for nothing.
func TestLive_scheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
		errand.Handle(w, func(context.Context, *errand.Job[mail]) error { return nil })
		defer runs(t, w)()
		add(t, q, mail{"a"}, &errand.JobOptions{Delay: 100 * time.Hour})
		time.Sleep(time.Second)
		store.version.Add(1)
		h := viewers(q, nil)
		look(t, h, "lane?queue=default")
		time.Sleep(time.Minute)
		store.taken()
		time.Sleep(10 * time.Minute)
		if reads := store.taken(); reads["settings"] > 30 { // the worker reads the rest
			t.Errorf("reads in ten minutes: %v", reads)
		}
	})
}

// The page of bulk jobs says that one is paused only until the hold ends.
func TestLive_bulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		add(t, q, mail{"a"}, nil)
		if _, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Queue: "default"}, Rate: 1}); err != nil {
			t.Fatal(err)
		}
		if err := q.Hold(t.Context(), errand.Lane{Queue: "errand.bulk"}, &errand.HoldOptions{For: time.Minute, Reason: "held"}); err != nil {
			t.Fatal(err)
		}
		store.version.Add(1)
		b := look(t, viewers(q, nil), "bulk")
		time.Sleep(50 * time.Second)
		if !b.shows("bulk jobs are paused") {
			t.Errorf("held: %s", b.text)
		}
		time.Sleep(22 * time.Second)
		if b.shows("bulk jobs are paused") {
			t.Errorf("once the hold has ended: %s", b.text)
		}
	})
}

// A wrong clock is said on each page, also if it is of what is committed alone.
func TestLive_clock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := counted(t)
		var off atomic.Int64
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet, Clock: func() time.Time { return time.Now().AddDate(30, 0, 0).Add(time.Duration(off.Load())) }})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		h := viewers(q, nil)
		if err := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "0 0 1 1 *", Args: mail{"a"}}); err != nil {
			t.Fatal(err)
		}
		store.version.Add(1)
		groups, schedules := look(t, h, "groups"), look(t, h, "schedules")
		time.Sleep(10 * time.Second)
		store.taken()
		off.Store(int64(400 * 24 * time.Hour))
		time.Sleep(10 * time.Second)
		if store.taken()["schedules"] == 0 || schedules.changed.Load() == 0 {
			t.Errorf("a tick has passed: %s", schedules.text)
		}
		off.Store(int64(-60 * 365 * 24 * time.Hour))
		time.Sleep(10 * time.Second)
		if !groups.shows("The clock cannot be right") {
			t.Errorf("the clock is wrong: %s", groups.text)
		}
	})
}

// Hundreds of pages are open, and nothing is committed: nothing is read. Who opens one too many hears so.
func TestLive_many(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		at := func(i int) string { return fmt.Sprint("groups?queue=q", i) }
		tags := make([]string, 1000)
		ask := func() (codes map[int]int) {
			codes = map[int]int{}
			for i := range tags {
				w := part(h, at(i), tags[i])
				codes[w.Code]++
				tags[i] = w.Header().Get("ETag")
			}
			return codes
		}
		ask()
		store.taken()
		for range 5 {
			time.Sleep(2 * time.Second)
			if codes := ask(); codes[304] != len(tags) {
				t.Errorf("answers: %v", codes)
			}
			if w := part(h, "groups?waiting=1&queue=x", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "Too many pages are open") {
				t.Errorf("one too many: %d %s", w.Code, w.Body)
			}
			if status, text := get(h, "/groups?queue=y"); status != 200 {
				t.Errorf("one too many is opened: %d %s", status, text)
			}
		}
		reads := store.taken()
		for what, n := range reads {
			if n > 1 && what != "groups" && what != "version" { // a page that is opened shows a look in its nav
				t.Errorf("reads: %v", reads)
			}
		}
		if reads["groups"] != 5 {
			t.Errorf("reads: %v", reads)
		}
		time.Sleep(6 * time.Second) // they are closed
		if w := part(h, "groups?waiting=1&queue=x", ""); w.Code != 200 {
			t.Errorf("once others are closed: %d", w.Code)
		}
		if part(h, "groups?queue=x&waiting=1", ""); store.taken()["groups"] != 1 {
			t.Error("the order of parameters matters")
		}
	})
}

// What pages show is kept for a minute after they were asked for last, and 16 MiB of it: of what is more,
// an open page hears that nothing has changed, but who opens it anew has it rendered.
func TestLive_kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := as(q, dashboard.Admin)
		var all []string
		for range 90 {
			id := add(t, q, mail{strings.Repeat("a", 250_000)}, nil)
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			all = append(all, "job/"+id.String())
		}
		store.version.Add(1)
		tags := make([]string, len(all))
		for i, at := range all {
			tags[i] = part(h, at, "").Header().Get("ETag")
			time.Sleep(300 * time.Millisecond)
		}
		store.taken()
		for i, at := range all {
			if w := part(h, at, tags[i]); w.Code != 304 {
				t.Errorf("%d: %d", i, w.Code)
			}
			time.Sleep(time.Millisecond)
		}
		if w := part(h, all[89], ""); w.Code != 200 || sum(store.taken()) > 0 {
			t.Errorf("the last: %d, or it was read again", w.Code)
		}
		if w := part(h, all[0], ""); w.Code != 200 || sum(store.taken()) == 0 {
			t.Errorf("the first: %d, or it was kept", w.Code)
		}
		time.Sleep(2 * time.Minute)
		store.taken()
		if part(h, all[89], tags[89]); sum(store.taken()) == 0 {
			t.Error("it was kept for two minutes")
		}
	})
}
