package dashboard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// memory is what a store in memory implements.
type memory interface {
	storage.Store
	storage.Publisher
	storage.Scheduler
	storage.Topics
	storage.Historian
	storage.Marker
	storage.Auditor
}

// counting is a store that counts its reads, and may fail.
type counting struct {
	memory
	version atomic.Int64
	failing atomic.Bool
	panics  atomic.Bool
	own     atomic.Bool            // reads are those of the test, and do not count
	slow    atomic.Int64           // how long Stats and Groups take
	lists   atomic.Int64           // how long Jobs takes
	rows    atomic.Int64           // that Jobs has looked at
	then    atomic.Pointer[func()] // what comes after the next read of a job

	mu    sync.Mutex
	reads map[string]int
}

var errDisk = errors.New("the disk does not answer")

// read counts a read and does it, unless the store fails.
func read[T any](c *counting, what string, get func() (T, error)) (v T, err error) {
	if err = c.reading(what); err != nil {
		return v, err
	}
	return get()
}

func (c *counting) reading(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.own.Load() {
		c.reads[what]++
	}
	if what == "groups" && c.panics.Load() {
		panic("a fault")
	}
	if c.failing.Load() {
		return errDisk
	}
	return nil
}

// taken returns the reads since the last call.
func (c *counting) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.reads
	c.reads = map[string]int{}
	return was
}

func (c *counting) Version(ctx context.Context) (int64, error) {
	return c.version.Load(), cmp.Or(ctx.Err(), c.reading("version"))
}

func (c *counting) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	return read(c, "stats", func() ([]storage.LaneStats, error) {
		time.Sleep(time.Duration(c.slow.Load()))
		return c.memory.Stats(ctx)
	})
}

func (c *counting) History(ctx context.Context, since time.Time) ([]storage.Sample, error) {
	return read(c, "history", func() ([]storage.Sample, error) { return c.memory.History(ctx, since) })
}

func (c *counting) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	return read(c, "holds", func() ([]storage.HoldState, error) { return c.memory.Holds(ctx, now) })
}

func (c *counting) Causes(ctx context.Context, lane storage.Lane, limit int) ([]storage.Cause, error) {
	return read(c, "causes", func() ([]storage.Cause, error) { return c.memory.Causes(ctx, lane, limit) })
}

func (c *counting) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	page, err := read(c, "jobs", func() (storage.Page, error) {
		time.Sleep(time.Duration(c.lists.Load()))
		return c.memory.Jobs(ctx, f, after, limit)
	})
	c.rows.Add(int64(page.Looked))
	return page, err
}

func (c *counting) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	return read(c, "job", func() (storage.Record, error) {
		r, err := c.memory.Job(ctx, id)
		if then := c.then.Swap(nil); then != nil {
			(*then)()
		}
		return r, err
	})
}

func (c *counting) Settings(ctx context.Context) ([]storage.LaneSettings, error) {
	return read(c, "settings", func() ([]storage.LaneSettings, error) { return c.memory.Settings(ctx) })
}

func (c *counting) Published(ctx context.Context) ([]storage.Published, error) {
	return read(c, "workers", func() ([]storage.Published, error) { return c.memory.Published(ctx) })
}

func (c *counting) Ahead(ctx context.Context, id storage.ID, most int) (storage.Ahead, error) {
	return read(c, "ahead", func() (storage.Ahead, error) { return c.memory.Ahead(ctx, id, most) })
}

func (c *counting) Counts(ctx context.Context) ([]storage.Count, error) {
	return read(c, "counts", func() ([]storage.Count, error) { return c.memory.Counts(ctx) })
}

func (c *counting) States(ctx context.Context, ids []storage.ID) ([]storage.State, error) {
	return read(c, "states", func() ([]storage.State, error) { return c.memory.States(ctx, ids) })
}

func (c *counting) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (storage.GroupPage, error) {
	return read(c, "groups", func() (storage.GroupPage, error) {
		time.Sleep(time.Duration(c.slow.Load()))
		return c.memory.Groups(ctx, of, after, limit)
	})
}

func (c *counting) Schedule(ctx context.Context, name string) (storage.ScheduleRecord, error) {
	return read(c, "schedule", func() (storage.ScheduleRecord, error) { return c.memory.Schedule(ctx, name) })
}

func (c *counting) Schedules(ctx context.Context) ([]storage.ScheduleRecord, error) {
	return read(c, "schedules", func() ([]storage.ScheduleRecord, error) { return c.memory.Schedules(ctx) })
}

func (c *counting) Ticks(ctx context.Context, name string) ([]storage.Tick, error) {
	return read(c, "ticks", func() ([]storage.Tick, error) { return c.memory.Ticks(ctx, name) })
}

func (c *counting) Entry(ctx context.Context, class, name string) (storage.Entry, error) {
	return read(c, "entry", func() (storage.Entry, error) { return c.memory.Entry(ctx, class, name) })
}

func (c *counting) Entries(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
	if err := c.reading("entries"); err != nil {
		return nil, 0, err
	}
	return c.memory.Entries(ctx, class, family, after, limit)
}

func (c *counting) Message(ctx context.Context, id string) (storage.Message, error) {
	return read(c, "message", func() (storage.Message, error) { return c.memory.Message(ctx, id) })
}

func (c *counting) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (storage.Message, []int64, error) {
	if err := c.reading("messagewith"); err != nil {
		return storage.Message{}, nil, err
	}
	return c.memory.MessageWith(ctx, id, entries...)
}

func (c *counting) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) ([]storage.Message, string, error) {
	if err := c.reading("messages"); err != nil {
		return nil, "", err
	}
	return c.memory.Messages(ctx, topic, since, after, limit)
}

// counted returns a queue in memory whose reads are counted.
func counted(t *testing.T) (*counting, *errand.Queue) {
	t.Helper()
	c := &counting{memory: storagetest.NewMemory().Open().(memory), reads: map[string]int{}}
	clock := func() time.Time { return time.Now().AddDate(30, 0, 0) } // a bubble begins in 2000
	q, err := errand.New(t.Context(), c, &errand.Options{Logger: quiet, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return c, q
}

// bubble runs a test in a bubble, with such a queue and what viewers see of it.
func bubble(t *testing.T, f func(t *testing.T, store *counting, q *errand.Queue, h http.Handler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		t.Cleanup(func() { _ = q.Close() })
		f(t, store, q, viewers(q, nil))
	})
}

// commit enqueues a job.
func (c *counting) commit(t *testing.T, q *errand.Queue) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), mail{"a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.version.Add(1)
	return e.ID
}

func viewers(q *errand.Queue, auth func(*http.Request) (dashboard.Identity, error)) http.Handler {
	if auth == nil {
		auth = dashboard.Anyone(dashboard.Viewer)
	}
	return dashboard.Handler(q, &dashboard.Options{Auth: auth, Logger: quiet})
}

// part asks for what a page shows now, as an open page does that has shown what a tag stands for.
func part(h http.Handler, at, tag string, with ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/"+at, nil)
	r.Header.Set("Errand-Part", "main")
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	for _, f := range with {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// tab is an open page. It asks each 2 s.
type tab struct {
	changed, same, failed atomic.Int64 // answers
	nav                   atomic.Int64 // those with a change of the nav alone
	mu                    sync.Mutex
	text                  string    // of the last change
	as                    time.Time // when that was the newest, as the page says
	stop                  func()
}

// look opens a page, until the test ends or its stop is called.
func look(t *testing.T, h http.Handler, at string) *tab {
	t.Helper()
	status, text := get(h, "/"+at)
	if status != 200 {
		t.Fatalf("%s: %d %s", at, status, text)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	b := &tab{text: text, stop: func() { stop(); <-ended }}
	t.Cleanup(b.stop)
	tag := `"` + tagIn.FindStringSubmatch(text)[1] + `"`
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
			}
			w := part(h, at, tag)
			age, err := strconv.Atoi(w.Header().Get("Errand-Age"))
			b.mu.Lock()
			if err == nil {
				b.as = time.Now().Add(-time.Duration(age) * time.Millisecond)
			}
			if w.Code == 200 {
				tag = w.Header().Get("ETag")
				if text := w.Body.String(); strings.Contains(text, "<main") {
					b.text = text
				} else {
					b.nav.Add(1)
					b.text = text + b.text[strings.Index(b.text, "<main"):]
				}
			}
			b.mu.Unlock()
			switch w.Code {
			case 200:
				b.changed.Add(1)
			case 304:
				b.same.Add(1)
			default:
				b.failed.Add(1)
			}
		}
	}()
	return b
}

func (b *tab) shows(want string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text, want)
}

// newest returns when the page was the newest, as it says.
func (b *tab) newest() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.as
}

var tagIn = regexp.MustCompile(`data-tag="([^"]+)"`)

// sum adds up reads. Version reads nothing.
func sum(reads map[string]int) (n int) {
	for what, r := range reads {
		if what != "version" {
			n += r
		}
	}
	return n
}

// A hundred viewers cost at most eight reads a second while something is committed each second,
// whatever they look at, and each sees the change of its job, or of all of them.
func TestLive_reads(t *testing.T) {
	for name, page := range map[string]func(i int, job errand.ID) string{
		"front and list": func(i int, _ errand.ID) string { return []string{"", "jobs"}[i%2] },
		"front and jobs": func(i int, job errand.ID) string { return []string{"", "job/" + job.String()}[i%2] },
		"lists":          func(i int, _ errand.ID) string { return []string{"jobs", "groups", "schedules", "bulk"}[i%4] },
		"topics":         func(int, errand.ID) string { return "topics" },
		"all": func(i int, job errand.ID) string {
			return []string{"", "job/" + job.String(), "jobs", "lane?queue=default", "topics", "dead"}[i%6]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { liveReads(t, page) })
		})
	}
}

func liveReads(t *testing.T, page func(i int, job errand.ID) string) {
	store, q := counted(t)
	defer q.Close()
	h := viewers(q, nil)
	const seconds = 100
	jobs, all := make([]errand.ID, 100), make([]*tab, 100)
	for i := range jobs {
		jobs[i] = store.commit(t, q)
	}
	for i := range all {
		all[i] = look(t, h, page(i, jobs[i]))
		time.Sleep(23 * time.Millisecond) // not all ask at once
	}
	time.Sleep(10 * time.Second)
	store.taken()
	for i := range seconds {
		store.own.Store(true)
		if _, err := q.Cancel(t.Context(), jobs[i]); err != nil {
			t.Fatal(err)
		}
		store.own.Store(false)
		store.version.Add(1)
		time.Sleep(time.Second)
	}
	reads := store.taken()
	n := sum(reads)
	if n > 8*seconds || n < seconds/2 {
		t.Errorf("%d reads in %d s: %v", n, seconds, reads)
	}
	t.Logf("%.1f reads a second: %v", float64(n)/seconds, reads)
	time.Sleep(2 * time.Minute)
	for i, b := range all {
		at := page(i, jobs[i])
		if at == "" && b.changed.Load() < seconds/2-1 {
			t.Errorf("viewer %d of the overview saw %d changes of %d", i, b.changed.Load(), seconds)
		}
		if strings.HasPrefix(at, "job") && !b.shows("cancelled") || b.failed.Load() > 0 {
			t.Errorf("viewer %d of %s: %d changes, %d failures, %s", i, at, b.changed.Load(), b.failed.Load(), b.text)
		}
	}
}

// While nothing is committed nothing is read but the version, and nothing is sent.
func TestLive_idle(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		id := store.commit(t, q)
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		var all []*tab
		pages := []string{"", "lanes", "lane?queue=default", "jobs", "jobs?state=cancelled", "dead", "groups", "schedules", "topics", "bulk", "workers", "health", "job/" + id.String()}
		for _, at := range pages {
			all = append(all, look(t, h, at))
		}
		time.Sleep(12*time.Minute + time.Second) // rates have become 0
		store.taken()
		for _, b := range all {
			b.changed.Store(0)
			b.same.Store(0)
		}
		time.Sleep(10*time.Minute + time.Second)
		reads := store.taken()
		if sum(reads) > 0 || reads["version"] > 601 || reads["version"] < 299 {
			t.Errorf("reads in 10 minutes: %v", reads)
		}
		for i, b := range all {
			if b.changed.Load()+b.failed.Load() > 0 || b.same.Load() < 300 {
				t.Errorf("the viewer of %q got %d changes, %d failures", pages[i], b.changed.Load(), b.failed.Load())
			}
		}
		store.commit(t, q)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all[0].changed.Load() != 1 || !all[0].shows("1 job is due, since") {
			t.Errorf("a job came, and the overview shows %s", all[0].text)
		}
	})
}

// Ages are no change: browsers count them.
func TestLive_ages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		store.commit(t, q)
		tags := map[string]string{}
		for range 3 {
			h := viewers(q, nil)
			time.Sleep(7 * time.Second)
			for _, at := range []string{"lanes", "jobs", "dead"} {
				first := part(h, at, "").Header().Get("ETag")
				time.Sleep(7 * time.Second)
				store.version.Add(1) // what it shows is rendered anew
				w := part(h, at, first)
				if w.Code != 304 || w.Header().Get("ETag") != first || w.Body.Len() > 0 {
					t.Errorf("%s: %d %s, was %s", at, w.Code, w.Header().Get("ETag"), first)
				}
				tags[at] = first
			}
		}
		if len(tags) != 3 || tags["jobs"] == tags["dead"] {
			t.Errorf("tags: %v", tags)
		}
		_, text := get(viewers(q, nil), "/")
		if !regexp.MustCompile(`is due, since <time datetime="[^"]+" class="long"><span class="ago">[^<]+ s</span></time>\.</h1>`).MatchString(text) {
			t.Errorf("the sentence is without its time: %s", text)
		}
	})
}

// A page is rendered anew once the moment has passed on which it depends: the end of a hold, and the
// time at which a job is due.
func TestLive_moments(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		e, err := q.Enqueue(t.Context(), mail{"a"}, &errand.JobOptions{Delay: 45 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{For: 90 * time.Second, Reason: "held"}); err != nil {
			t.Fatal(err)
		}
		store.version.Add(1)
		front, job := look(t, h, ""), look(t, h, "job/"+e.ID.String())
		time.Sleep(40 * time.Second)
		if !front.shows(`data-key="held default `) || !job.shows("it is due at") || job.shows("made ready by") {
			t.Errorf("before: %s %s", front.text, job.text)
		}
		time.Sleep(10 * time.Second)
		if !job.shows("made ready by the next look of a worker") {
			t.Errorf("once it is due: %s", job.text)
		}
		time.Sleep(43 * time.Second)
		if front.shows(`data-key="held default `) || job.shows("held") {
			t.Errorf("once the hold has ended: %s %s", front.text, job.text)
		}
	})
}

// The page of a job that ends while it is read says one thing of it.
func TestLive_ends(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		id := store.commit(t, q)
		ends := func() {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		store.then.Store(&ends)
		_, page := get(h, "/job/"+id.String())
		if text := plain(page); !strings.Contains(text, "cancelled") || strings.Contains(text, "Why it does not run") {
			t.Error(text)
		}
	})
}

// While others change, the page of a job whose row stays is rendered more seldom than the row is read;
// once nothing is committed, it shows what has changed beside the row, and reads no more.
func TestLive_rows(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		for range 10 {
			id := store.commit(t, q)
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			look(t, h, "job/"+id.String())
		}
		time.Sleep(time.Minute)
		store.taken()
		for range 120 {
			store.commit(t, q)
			time.Sleep(time.Second)
		}
		const (
			ofLook = 4 // the look that the nav of all pages shows reads each of these once
			// A page is rendered each 35 s at most: 10 pages of 14 reads, 4 reads a second. The look asks for workers
			// each 10 s. Which of those that wake at one moment comes first is open, so this may be met.
			most = 10*(120/35+1) + 120/10 + 1
		)
		if reads := store.taken(); reads["workers"] > most || reads["workers"] < 30 || reads["job"] < 3*reads["workers"] || sum(reads)-ofLook*reads["stats"] > 4*120 {
			t.Errorf("reads while others changed: %v", reads)
		}
		time.Sleep(time.Minute)
		store.taken()
		time.Sleep(10 * time.Minute)
		if reads := store.taken(); sum(reads) > 0 {
			t.Errorf("reads once nothing changes: %v", reads)
		}
	})
}

// The numbers of the nav are those of now on a page that shows no look and is not rendered anew: they come
// without the rest of the page.
func TestLive_nav(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		many := make([]*tab, 50)
		for i := range many { // so that each is rendered seldom
			many[i] = look(t, h, fmt.Sprint("groups?queue=q", i))
		}
		time.Sleep(time.Minute)
		if err := q.Hold(t.Context(), errand.Lane{Queue: "default"}, &errand.HoldOptions{For: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		store.version.Add(1)
		for _, c := range []struct {
			after time.Duration
			held  bool
		}{{5 * time.Second, true}, {30 * time.Second, false}} {
			time.Sleep(c.after)
			for i, b := range many {
				if b.shows("1 held") != c.held {
					t.Fatalf("page %d, %v later: held is %t", i, c.after, !c.held)
				}
			}
		}
		alone := int64(0)
		for _, b := range many {
			alone += b.nav.Load()
		}
		if alone < 60 {
			t.Errorf("the nav came alone %d times", alone)
		}
	})
}

// Viewers who may see the same share what is rendered, at most once a second. Who asks while it is
// rendered waits for it, and those of another role or address share nothing with them.
func TestLive_shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: func(r *http.Request) (dashboard.Identity, error) {
			role := dashboard.Viewer
			if r.Header.Get("As") != "" {
				role = dashboard.Operator
			}
			return dashboard.Identity{Name: r.Header.Get("Name"), Role: role}, nil
		}})
		store.commit(t, q)
		store.taken()
		part(h, "jobs", "")
		once := store.taken()["jobs"]
		time.Sleep(time.Second)
		store.slow.Store(int64(300 * time.Millisecond))
		store.commit(t, q)
		store.taken()
		var wait sync.WaitGroup
		tags := make([]string, 20)
		for i := range tags {
			wait.Go(func() {
				w := part(h, "jobs", "", func(r *http.Request) { r.Header.Set("Name", fmt.Sprint(i)) })
				tags[i] = w.Header().Get("ETag")
			})
		}
		wait.Wait()
		if reads := store.taken(); reads["jobs"] != once || reads["stats"] != 1 || tags[0] == "" {
			t.Errorf("reads of 20 viewers: %v", reads)
		}
		for _, tag := range tags {
			if tag != tags[0] {
				t.Errorf("tags: %v", tags)
			}
		}
		store.commit(t, q)
		if part(h, "jobs", tags[0]); store.taken()["jobs"] != 0 {
			t.Error("it was rendered twice in a second")
		}
		if part(h, "jobs?state=ready", ""); store.taken()["jobs"] == 0 {
			t.Error("another address was not read")
		}
		w := part(h, "jobs", tags[0], func(r *http.Request) { r.Header.Set("As", "operator") })
		if store.taken()["jobs"] == 0 || !strings.Contains(w.Body.String(), `name="id"`) {
			t.Errorf("another role: %d %s", w.Code, w.Body)
		}
	})
}

// What takes long to render is rendered more seldom.
func TestLive_slow(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		store.slow.Store(int64(30 * time.Millisecond))
		part(h, "groups", "")
		for _, c := range []struct {
			after time.Duration
			read  bool
		}{{time.Second, false}, {1500 * time.Millisecond, false}, {time.Second, true}} {
			time.Sleep(c.after)
			store.commit(t, q)
			store.taken()
			if part(h, "groups", ""); (store.taken()["groups"] > 0) != c.read {
				t.Errorf("%v after the last: read is %t", c.after, !c.read)
			}
		}
	})
}

// A page with a look that takes long shows the last commit, also if that came soon after the one before.
func TestLive_slowLook(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		store.slow.Store(int64(200 * time.Millisecond))
		b := look(t, h, "")
		time.Sleep(time.Minute)
		store.commit(t, q)
		time.Sleep(2 * time.Second)
		store.commit(t, q)
		time.Sleep(10 * time.Second)
		if !b.shows("3 jobs are due") {
			t.Error(b.text)
		}
	})
}

// A viewer who goes while a page is rendered spoils it for no other.
func TestLive_gone(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		store.commit(t, q)
		store.slow.Store(int64(500 * time.Millisecond))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			part(h, "lanes", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
		}()
		time.Sleep(100 * time.Millisecond)
		leave()
		if w := part(h, "lanes", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "mail") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		<-gone
	})
}

// Of a store that does not say when something was committed, pages are rendered every 5 s.
func TestLive_blind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := counted(t)
		q, err := errand.New(t.Context(), struct{ memory }{store}, &errand.Options{Logger: quiet, Clock: func() time.Time { return time.Now().AddDate(30, 0, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		h := viewers(q, nil)
		front := look(t, h, "")
		look(t, h, "groups")
		time.Sleep(10 * time.Second)
		store.commit(t, q)
		store.taken()
		time.Sleep(time.Minute)
		if reads := store.taken(); reads["stats"] < 10 || reads["stats"] > 30 || reads["groups"] < 10 || reads["groups"] > 31 {
			t.Errorf("reads in a minute: %v", reads)
		}
		if !front.shows("1 job is due") {
			t.Error(front.text)
		}
	})
}

// How the answer to an open page looks: its headers, and that of a page that cannot be read.
func TestLive_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		role := atomic.Int64{}
		role.Store(int64(dashboard.Viewer))
		h := viewers(q, func(*http.Request) (dashboard.Identity, error) {
			return dashboard.Identity{Role: dashboard.Role(role.Load())}, nil
		})
		id := store.commit(t, q)
		_, page := get(h, "/jobs?state=ready")
		tag := tagIn.FindStringSubmatch(page)[1]
		for _, sent := range []string{`"` + tag + `"`, `W/"` + tag + `"`, `"` + tag + `-gzip"`, `"x", "` + tag + `"`} {
			w := part(h, "jobs?state=ready", sent)
			if head := w.Header(); w.Code != 304 || head.Get("Errand-Page") != "jobs" || head.Get("Errand-Age") == "" || head.Get("Errand-Now") == "" || head.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %v", sent, w.Code, head)
			}
		}
		w := part(h, "jobs?state=ready", `"other"`)
		text := w.Body.String()
		if w.Code != 200 || !strings.HasPrefix(text, "<title>Jobs – errand</title>") || !strings.Contains(text, `<main id="main"`) || !strings.Contains(text, id.String()) || strings.Contains(text, "<header") {
			t.Errorf("%d %s", w.Code, text)
		}
		for at, want := range map[string]int{"jobs?none=1": 400, "job/x": 400, "job/" + (errand.ID{1}).String(): 404, "none": 404, "act": 405, "jobs?format=json": 200, "enqueue": 403} {
			if w := part(h, at, ""); w.Code != want || w.Header().Get("ETag") != "" {
				t.Errorf("%s: %d %v, want %d", at, w.Code, w.Header(), want)
			}
		}
		role.Store(0)
		if w := part(h, "jobs?state=ready", `"`+tag+`"`); w.Code != 403 {
			t.Errorf("without a role: %d", w.Code)
		}
		role.Store(int64(dashboard.Viewer))
		part(h, "", "")
		time.Sleep(time.Second)
		store.failing.Store(true)
		time.Sleep(time.Second)
		if w := part(h, "jobs?state=ready", ""); w.Code != 503 {
			t.Errorf("of a store that fails: %d", w.Code)
		}
		if w := part(h, "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "What follows is") || w.Header().Get("Errand-Age") != "2000" {
			t.Errorf("the last overview: %d %s", w.Code, w.Body)
		}
		store.failing.Store(false)
		time.Sleep(2 * time.Second)
		if w := part(h, "", ""); w.Code != 200 || strings.Contains(w.Body.String(), "What follows is") {
			t.Errorf("the overview again: %d %s", w.Code, w.Body)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if w := part(h, "groups", ""); w.Code != 503 {
			t.Errorf("of a closed queue: %d", w.Code)
		}
	})
}
