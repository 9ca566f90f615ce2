package dashboard_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

var tag = regexp.MustCompile(`<[^>]*>`)

// plain returns the text of a page, without what is seen only while it has the focus.
func plain(page string) string {
	page = regexp.MustCompile(`<span class="exact">[^<]*</span>`).ReplaceAllString(page, "")
	return strings.Join(strings.Fields(tag.ReplaceAllString(page, " ")), " ")
}

// The parts of the overview come in the order in which somebody asks: how is it, what holds work
// up, where, how much goes through, what dies, what runs, and who works.
func TestFront_order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		defer q.Close()
		ctx, stop := context.WithCancel(t.Context())
		w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
		errand.Handle(w, func(ctx context.Context, job *errand.Job[mail]) error {
			if job.Args.To == "nobody" {
				return errand.Permanent(errDisk)
			}
			job.Progress(3, 10, "letters")
			<-ctx.Done()
			return ctx.Err()
		})
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		for _, job := range []errand.NewJob{{Args: mail{"nobody"}}, {Args: mail{"a"}}, {Args: mail{"a"}, Options: &errand.JobOptions{Queue: "slow"}}} {
			if _, err := q.Enqueue(ctx, job.Args, job.Options); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Operator), Logger: quiet, Name: "here"})
		time.Sleep(15 * time.Second) // the attempt began at once or, if the worker was late to look, some milliseconds later
		status, page := get(h, "/")
		text, at := plain(page), 0
		for _, want := range []string{"here", "operator", "as of", "Search", "1 thing holds up 1 job.", "slow · mail , no worker, for 1 min", "Oldest due", "● running 1", "○ ready 1", "▮ held 0", "scheduled 0", "blocked 0", "✕ dead 1",
			"What holds work up", "no worker", "Queues and kinds", "The last hour", "Done a minute", "Failed a minute", "What kills most", "1 dead", errDisk.Error(), "What runs longest", "Running since", "1 min 1", " s ago", "3 of 10", "Workers", "default"} {
			i := strings.Index(text[at:], want)
			if i < 0 {
				t.Fatalf("%d, no %q after %q in %s", status, want, text[:at], text)
			}
			at += i
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

var wellPast = regexp.MustCompile(`Well: (59|60|61)(\.\d)? jobs a minute, none waits.* Done a minute (59|60|61) at most 6[01], at `)

// The rates of the front are those of the file: not known before it is five minutes old, and there
// for a program that begins later. Each chart has a table.
func TestFront_past(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		if _, page := get(h, "/"); !strings.Contains(plain(page), "Done a minute – not known of all queues yet no chart yet") {
			t.Errorf("at first: %s", plain(page))
		}
		ctx, stop := context.WithCancel(t.Context())
		w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
		errand.Handle(w, func(context.Context, *errand.Job[mail]) error { return nil })
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		time.Sleep(500 * time.Millisecond) // nothing happens when a period begins
		for range 12 * 60 {                // one a second, and the worker asks once a second
			store.commit(t, q)
			time.Sleep(time.Second)
			store.version.Add(1)
		}
		if _, page := get(h, "/"); !wellPast.MatchString(plain(page)) {
			t.Errorf("after twelve minutes: %s", plain(page))
		}
		later := viewers(q, nil)
		_, page := get(later, "/")
		if text := plain(page); !wellPast.MatchString(text) {
			t.Errorf("of a program that begins now: %s", text)
		}
		if n := strings.Count(page, `<svg class="graph `); n != 4 || strings.Count(page, "as a table</summary>") != 4 {
			t.Errorf("%d lines of charts", n)
		}
		for span, from := range map[string]string{"day": "one day", "week": "one week"} {
			if code, page := get(later, "/?span="+span); code != 200 || !strings.Contains(page, "in the last "+span) {
				t.Errorf("%s: %d %s", from, code, plain(page))
			}
		}
		if _, page := get(later, "/lane?queue=default&kind=mail"); !regexp.MustCompile(`Waited p50 / p95 \S+ ms / \S+ ms, of 7\d\d attempts of this program since 1\d min .*ago Took p50 / p95 &lt; 5 ms / &lt; 5 ms`).MatchString(plain(page)) {
			t.Errorf("the kind: %s", plain(page))
		}
		if _, page := get(later, "/lanes"); !strings.Contains(plain(page), " &lt; 5 ms &lt; 5 ms") {
			t.Errorf("the queues: %s", plain(page))
		}
		if code, page := get(later, "/?span=year"); code != 400 || !strings.Contains(plain(page), "must be hour, day or week") {
			t.Errorf("another span: %d %s", code, plain(page))
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// A handler reads nothing while nobody looks.
func TestHandler_unseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		viewers(q, nil)
		synctest.Wait()
		store.taken()
		for range 600 {
			store.commit(t, q)
			time.Sleep(time.Second)
		}
		if reads := store.taken(); len(reads) != 0 {
			t.Errorf("in ten busy minutes: %v", reads)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// If the queue cannot be looked at, pages show what was there last with its age, the error and
// what to do; without that they say so.
func TestLook_away(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		time.Sleep(2 * time.Second)
		pages := []string{"/", "/lanes", "/workers", "/health"}
		for _, page := range pages {
			if status, text := get(h, page); status != 200 || strings.Contains(text, "What follows is") {
				t.Errorf("%s: %d %s", page, status, text)
			}
		}
		seen := look(t, h, "")
		time.Sleep(2500 * time.Millisecond)
		told := func(what string, want int64) {
			t.Helper()
			if n := seen.changed.Swap(0); n != want {
				t.Errorf("%s: told %d times, want %d", what, n, want)
			}
		}
		told("before", 0)
		store.failing.Store(true)
		time.Sleep(time.Minute)
		told("away", 1)
		for _, page := range pages {
			status, text := get(h, page)
			if text = plain(text); status != 200 || !strings.Contains(text, "What follows is 1 min old. "+errDisk.Error()) || !strings.Contains(text, "errand doctor") {
				t.Errorf("%s, away: %d %s", page, status, text)
			}
		}
		if _, text := get(h, "/"); !strings.Contains(plain(text), "The queue cannot be looked at.") || !strings.Contains(text, "mail") {
			t.Errorf("the overview: %s", text)
		}
		if status, text := get(h, "/?format=json"); status != 200 || !strings.Contains(text, `"error":"`+errDisk.Error()) {
			t.Errorf("as JSON: %d %s", status, text)
		}
		if status, text := get(viewers(q, nil), "/"); status != 503 || !strings.Contains(text, errDisk.Error()) {
			t.Errorf("of a new handler: %d %s", status, text)
		}
		store.failing.Store(false)
		time.Sleep(4 * time.Second)
		told("back", 1)
		if status, text := get(h, "/"); status != 200 || strings.Contains(text, "What follows is") {
			t.Errorf("back: %d %s", status, plain(text))
		}
	})
}

// A look that takes longer than a second is shown to those who wait for it.
func TestLook_slow(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		synctest.Wait()
		store.commit(t, q)
		time.Sleep(2 * time.Second)
		store.slow.Store(int64(1500 * time.Millisecond))
		began := time.Now()
		if status, text := get(h, "/"); status != 200 || time.Since(began) != 1500*time.Millisecond || strings.Contains(text, "What follows is") {
			t.Errorf("after %v: %d %s", time.Since(began), status, plain(text))
		}
		store.slow.Store(int64(3 * time.Second)) // more than a page waits
		store.version.Add(1)
		began = time.Now()
		if status, _ := get(h, "/lanes"); status != 200 || time.Since(began) != 0 {
			t.Errorf("the next look is taken at once: %d after %v", status, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		began = time.Now()
		if status, text := get(h, "/lanes"); status != 200 || time.Since(began) != 2*time.Second || !strings.Contains(text, "mail") {
			t.Errorf("after %v: %d %s", time.Since(began), status, plain(text))
		}
		time.Sleep(time.Minute)
	})
}

// An action is seen on the next page, though that is less than a second later.
func TestLook_afterAction(t *testing.T) {
	q := open(t)
	fill(t, q)
	h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Operator), Logger: quiet})
	if _, text := get(h, "/"); !strings.Contains(text, "Release") {
		t.Fatalf("there is no hold: %s", plain(text))
	}
	confirm(t, h, asks(t, h, map[string][]string{"do": {"release"}, "queue": {"default"}, "reason": {"held"}}))
	if _, text := get(h, "/"); strings.Contains(text, "Release") {
		t.Errorf("the hold is shown still: %s", plain(text))
	}
}

// What an operator is shown is not kept for a viewer.
func TestKept_roles(t *testing.T) {
	q := open(t)
	fill(t, q)
	role := dashboard.Operator
	h := viewers(q, func(*http.Request) (dashboard.Identity, error) { return dashboard.Identity{Role: role}, nil })
	for _, c := range []struct {
		role   dashboard.Role
		path   string
		button bool
	}{{dashboard.Operator, "/", true}, {dashboard.Viewer, "/", false}, {dashboard.Operator, "/", true}, {dashboard.Operator, "/lanes?search=none", false}, {dashboard.Operator, "/lanes", true}} {
		role = c.role
		if _, text := get(h, c.path); strings.Contains(text, "<button aria-label=") != c.button {
			t.Errorf("%s of %v: %s", c.path, c.role, plain(text))
		}
	}
}

// A hold whose time is over is not shown, though nothing was committed since.
func TestFront_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		store.commit(t, q)
		if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{For: time.Minute}); err != nil {
			t.Fatal(err)
		}
		h := viewers(q, nil)
		if _, text := get(h, "/"); !strings.Contains(plain(text), "1 thing holds up 1 job.") {
			t.Errorf("held: %s", plain(text))
		}
		time.Sleep(61 * time.Second)
		if _, text := get(h, "/"); !strings.Contains(plain(text), "No worker runs; 1 job is due") || strings.Contains(plain(text), "an operator may") {
			t.Errorf("over: %s", plain(text))
		}
	})
}

// The script and the style stay small.
func TestAssets_size(t *testing.T) {
	all, err := filepath.Glob("assets/*")
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	sum := 0
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sum += len(b); name == filepath.Join("assets", "script.js") && bytes.Count(b, []byte("\n")) > 400 {
			t.Errorf("the script has %d lines, of at most 400", bytes.Count(b, []byte("\n")))
		}
	}
	if sum > 60<<10 {
		t.Errorf("the assets have %d bytes, of at most 60 KiB", sum)
	}
}

// A kind that no worker takes from many queues is one thing that holds up jobs.
func TestFront_unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := counted(t)
		defer q.Close()
		for i := range 5 {
			if _, err := q.Enqueue(t.Context(), mail{"a"}, &errand.JobOptions{Queue: "q" + strconv.Itoa(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Enqueue(t.Context(), letter{To: "a"}, nil); err != nil {
			t.Fatal(err)
		}
		_, page := get(dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Viewer), Logger: quiet}), "/")
		text := plain(page)
		for _, want := range []string{"no worker No worker that runs takes this kind from 5 queues. any queue · mail 5 1 s Start a program", "no worker No worker that runs takes this kind from this queue. default · letter 1 1 s Start", "▲ no worker, 1 s 1 s ○ 1 ready"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	})
}

// While the queue is away, or is closed, no page says how it is now.
func TestLook_unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		h := as(q, dashboard.Admin)
		verdicts := map[string]string{"/": "Enqueue a job from a program", "/health": "The file can be written"}
		pages := []string{"/", "/health", "/enqueue"}
		for _, page := range pages {
			if status, text := get(h, page); status != 200 || !strings.Contains(text, verdicts[page]) || strings.Contains(text, "What follows is") {
				t.Errorf("%s: %d %s", page, status, plain(text))
			}
		}
		away := func(what, why string) {
			t.Helper()
			time.Sleep(time.Minute)
			for _, page := range pages {
				status, text := get(h, page)
				text = plain(text)
				if verdict := verdicts[page]; status != 200 || !strings.Contains(text, "What follows is") || !strings.Contains(text, why) || verdict != "" && strings.Contains(text, verdict) || strings.Contains(text, "Well") {
					t.Errorf("%s, %s: %d %s", page, what, status, text)
				}
			}
		}
		store.failing.Store(true)
		away("away", errDisk.Error())
		store.failing.Store(false)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		away("closed", "The queue is closed.")
	})
}
