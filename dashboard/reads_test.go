package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// openOn opens a queue on what wrap makes of a store.
func openOn(t *testing.T, wrap func(*sqlite.Store) storage.Store) *errand.Queue {
	t.Helper()
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	q, err := errand.New(t.Context(), wrap(file), &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// A page reads as often however many rows there are beyond those that it shows, and its rows are
// no more than it says.
func TestPages_reads(t *testing.T) {
	store := &counting{reads: map[string]int{}}
	q := openOn(t, func(file *sqlite.Store) storage.Store {
		store.memory = file
		return store
	})
	const many = 250
	crowd(t, q, many)
	h := as(q, dashboard.Admin)
	get(h, "/lanes") // the look that those below share
	for path, charged := range readsOf {
		store.taken()
		status, _ := get(h, "/"+path)
		if reads := store.taken(); status != 200 || sum(reads) > charged {
			t.Errorf("%s: %d, reads %v, a fragment is charged with %d", path, status, reads, charged)
		}
	}
	for path, most := range map[string]int{
		"lanes": 20, "lane?queue=q000": 20, "lane?kind=raw": 20, "jobs": 20, "jobs?queue=q000": 20, "dead": 20, "groups?waiting=1": 20,
		"schedules": 20, "workers": 20, "health": 20, "endpoints": 20, "endpoint?id=e000": 50, "endpoints?search=e0": 20,
		"topics": 80, "topic?name=t000": 20, "devices": 60, "device?name=d000": 20, "search?q=0": 80, "bulk": 20,
	} {
		store.taken()
		store.rows.Store(0)
		status, text := get(h, "/"+path)
		n, rows := sum(store.taken()), store.rows.Load()
		if status != 200 || n > most || rows > 2100 || strings.Count(text, "<tr") > 210 {
			t.Errorf("%s: %d, %d reads of at most %d, %d jobs looked at, %d rows", path, status, n, most, rows, strings.Count(text, "<tr"))
		}
	}
	for path, next := range map[string]string{"lanes": "page=2", "jobs": "after=", "groups?waiting=1": "after=", "schedules": "page=2", "endpoints": "after=e049", "topics": "after=t049", "topic?name=t000": "after=s049", "devices": "after=d049"} {
		if _, text := get(h, "/"+path); !strings.Contains(text, next) {
			t.Errorf("%s has no next page with %s: %s", path, next, text)
		}
	}
	for at, row := range map[string]string{
		"jobs?kind=raw&state=ready&state=blocked": `<td class="main"><a class="id" href="\./job/([^"]*)"`, "lanes?search=q": `<tr data-key="([^"]*)"`,
		"groups?waiting=1&queue=default": `<tr data-key="([^"]*)"`, "schedules?search=n": `<tr><td class="main"><a href="schedule([^"]*)"`,
		"endpoints?search=e": `<tr><td class="main"><a href="endpoint([^"]*)"`, "topics": `<tr><td class="main"><a href="topic([^"]*)"`, "topic?name=t000": `<tr><td class="main"><a href="subscription([^"]*)"`, "devices": `<a href="device\?name=([^"]*)"`,
	} {
		want := many
		switch {
		case strings.HasPrefix(at, "jobs"):
			want = 3 * many
		case strings.HasPrefix(at, "endpoints"), strings.HasPrefix(at, "topic"), at == "devices":
			want = few
		}
		if n, different := walk(t, h, at, regexp.MustCompile(row)); n != want || different != want {
			t.Errorf("%s: %d rows on all pages, %d of them different, want %d", at, n, different, want)
		}
	}
}

// readsOf is how many reads fragments are charged with, of pages of a crowd.
var readsOf = map[string]int{"lane?queue=q000&kind=raw": 5, "endpoint?id=e000": 32, "subscription?id=s000": 7, "endpoints": 4, "jobs": 2, "dead": 2}

// few is how many topics, endpoints and devices a crowd has.
const few = 60

// walk follows the links to the next page of a list, and returns how many rows there are in all,
// and how many of them are different.
func walk(t *testing.T, h http.Handler, at string, row *regexp.Regexp) (n, different int) {
	t.Helper()
	seen := map[string]bool{}
	for pages := 0; at != "" && pages < 100; pages++ {
		status, text := get(h, "/"+at)
		if status != 200 {
			t.Fatalf("%s: %d %s", at, status, text)
		}
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			n++
			seen[m[1]] = true
		}
		page, _, _ := strings.Cut(at, "?")
		at = ""
		if m := toNext.FindStringSubmatch(text); m != nil {
			at = page + html.UnescapeString(m[1])
		}
	}
	return n, len(seen)
}

var toNext = regexp.MustCompile(`href="(\?[^"]*)">(?:Next|Go on)<`)

// crowd adds many of all that there are pages of.
func crowd(t *testing.T, q *errand.Queue, many int) {
	t.Helper()
	ctx := t.Context()
	var jobs []errand.NewJob
	for i := range many {
		name := fmt.Sprintf("q%03d", i)
		jobs = append(jobs,
			errand.NewJob{Args: errand.RawArgs{OfKind: "raw"}, Options: &errand.JobOptions{Queue: name}},
			errand.NewJob{Args: errand.RawArgs{OfKind: "raw"}, Options: &errand.JobOptions{Group: name}},
			errand.NewJob{Args: errand.RawArgs{OfKind: "raw"}, Options: &errand.JobOptions{Group: name}})
	}
	_, err := q.EnqueueMany(ctx, jobs)
	hooks, errHooks := webhook.New(q, &webhook.Options{Logger: quiet})
	if err = errors.Join(err, errHooks); err != nil {
		t.Fatal(err)
	}
	defer hooks.Close()
	topics, err := topic.New(q, hooks, &topic.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // what an endpoint shows of its deliveries
		for i := range 20 {
			if _, err := hooks.Send(ctx, webhook.Message{ID: fmt.Sprint("m", i), Body: []byte("{}")}, "e000"); err != nil {
				t.Fatal(err)
			}
		}
	}()
	for i := range many {
		n := fmt.Sprintf("%03d", i)
		err := q.Schedule(ctx, errand.Schedule{Name: "n" + n, Spec: "0 3 * * *", Args: errand.RawArgs{OfKind: "raw"}})
		err = errors.Join(err, q.Configure(ctx, errand.Lane{Queue: "q" + n}, errand.Settings{MaxJobs: new(10)}))
		if i < few {
			_, errTopic := topics.Create(ctx, topic.Topic{Name: "t" + n})
			_, _, errEndpoint := hooks.Create(ctx, webhook.Endpoint{ID: "e" + n, URL: "https://a.example/"}, webhook.Secret{})
			_, errSub := topics.Subscribe(ctx, topic.Subscription{ID: "s" + n, Topic: "t000", Endpoint: "e" + n})
			err = errors.Join(err, errTopic, errEndpoint, errSub)
			putEntry(t, q, "relay-device", "d"+n, []byte(`{"key":"`+deviceKey+`"}`)) // the store has no transactions
			addStream(t, q, "d"+n, 1, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// gone is a store whose jobs are there for one read.
type gone struct {
	*sqlite.Store
	left atomic.Int64
}

func (s *gone) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	if s.left.Add(-1) < 0 {
		return storage.Record{}, storage.ErrNotFound
	}
	return s.Store.Job(ctx, id)
}

// A job that goes while its page is made is shown as it was, and the page says so; one that is
// not there is told of by what its ID says.
func TestJob_gone(t *testing.T) {
	store := &gone{}
	q := openOn(t, func(file *sqlite.Store) storage.Store {
		store.Store = file
		return store
	})
	e, err := q.Enqueue(t.Context(), mail{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := as(q, dashboard.Viewer)
	store.left.Store(1)
	if status, text := get(h, "/job/"+e.ID.String()); status != 200 || !strings.Contains(text, "was deleted while this page was made") {
		t.Errorf("gone meanwhile: %d %s", status, text)
	}
	if status, text := get(h, "/job/"+e.ID.String()); status != 404 || !strings.Contains(text, "By its ID it was enqueued at") || !strings.Contains(text, "a day if they do not") {
		t.Errorf("gone: %d %s", status, text)
	}
}

// A list goes on looking for a second, in reads of a bounded size, and says how far it is over all its
// pages. So does a search. What took long is not read again while the page is open.
func TestJobs_partial(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, _ http.Handler) {
		jobs := make([]errand.NewJob, 5100)
		for i := range jobs {
			jobs[i] = errand.NewJob{Args: mail{fmt.Sprintf("u%d@example.com", i)}, Options: &errand.JobOptions{Delay: time.Hour}}
		}
		for part := range slices.Chunk(jobs, 1000) {
			if _, err := q.EnqueueMany(t.Context(), part); err != nil {
				t.Fatal(err)
			}
		}
		store.lists.Store(int64(70 * time.Millisecond)) // so 15 of them take a second
		h := as(q, dashboard.Admin)
		says := func(path string, all ...string) (text string) {
			t.Helper()
			store.taken()
			store.rows.Store(0)
			_, text = get(h, path)
			if n, rows := store.taken()["jobs"], store.rows.Load(); n > 16 || rows > 3000 {
				t.Errorf("%s: %d reads, %d jobs looked at", path, n, rows)
			}
			for _, s := range all {
				if !strings.Contains(text, s) {
					t.Errorf("%s is without %s: %s", path, s, text)
				}
			}
			return text
		}
		const far = "Looked at 3,000 of about 5,100 jobs so far: "
		text := says("/jobs?state=scheduled&arg=none", far+"none matches yet.", "None is on this page.")
		if strings.Contains(text, `data-page="jobs"`) {
			t.Error("the page is read again while it is open")
		}
		if store.taken(); part(h, "/jobs?state=scheduled&arg=none", "").Code != 200 || store.taken()["jobs"] > 10 {
			t.Error("an open page looks at more than the least")
		}
		next := toNext.FindStringSubmatch(text)
		if next == nil {
			t.Fatal(text)
		}
		if text = says("/jobs"+html.UnescapeString(next[1]), "All 5,100 jobs that could match were looked at.", "No scheduled job matches."); toNext.MatchString(text) {
			t.Error(text)
		}
		for _, arg := range []string{"u5099@example.com", "To=u5099@example.com"} {
			text = says("/search?q="+arg, far+"none matches yet. <a", "not by the beginning")
			next = regexp.MustCompile(`href="jobs([^"]*)">Go on<`).FindStringSubmatch(text)
			if next == nil {
				t.Fatal(text)
			}
			says("/jobs"+html.UnescapeString(next[1]), "All 5,100 jobs that could match were looked at.", "u5099@example.com&#34;}</code>")
			says("/search?q="+strings.Replace(arg, "5099", "17", 1), far+"1 found, and there may be more.", "default · mail", "scheduled")
		}
	})
}
