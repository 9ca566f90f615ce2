package dashboard_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
}

// counting is a store that counts its reads, and may fail.
type counting struct {
	memory
	version atomic.Int64
	failing atomic.Bool
	own     atomic.Bool  // reads are those of the test, and do not count
	slow    atomic.Int64 // how long Stats takes

	mu    sync.Mutex
	reads map[string]int
}

var errDisk = errors.New("the disk does not answer")

// read counts a read.
func (c *counting) read(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.own.Load() {
		c.reads[what]++
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

func (c *counting) Version(context.Context) (int64, error) {
	return c.version.Load(), c.read("version")
}

func (c *counting) Stats(ctx context.Context) ([]storage.LaneStats, error) {
	if err := c.read("stats"); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(c.slow.Load()))
	return c.memory.Stats(ctx)
}

func (c *counting) History(ctx context.Context, since time.Time) ([]storage.Sample, error) {
	if err := c.read("history"); err != nil {
		return nil, err
	}
	return c.memory.History(ctx, since)
}

func (c *counting) Holds(ctx context.Context, now time.Time) ([]storage.HoldState, error) {
	if err := c.read("holds"); err != nil {
		return nil, err
	}
	return c.memory.Holds(ctx, now)
}

func (c *counting) Causes(ctx context.Context, lane storage.Lane, limit int) ([]storage.Cause, error) {
	if err := c.read("causes"); err != nil {
		return nil, err
	}
	return c.memory.Causes(ctx, lane, limit)
}

func (c *counting) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	if err := c.read("jobs"); err != nil {
		return storage.Page{}, err
	}
	return c.memory.Jobs(ctx, f, after, limit)
}

func (c *counting) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	if err := c.read("job"); err != nil {
		return storage.Record{}, err
	}
	return c.memory.Job(ctx, id)
}

func (c *counting) Settings(ctx context.Context) ([]storage.LaneSettings, error) {
	if err := c.read("settings"); err != nil {
		return nil, err
	}
	return c.memory.Settings(ctx)
}

func (c *counting) Published(ctx context.Context) ([]storage.Published, error) {
	if err := c.read("workers"); err != nil {
		return nil, err
	}
	return c.memory.Published(ctx)
}

func (c *counting) Ahead(ctx context.Context, id storage.ID, most int) (a storage.Ahead, err error) {
	if err = c.read("ahead"); err != nil {
		return a, err
	}
	return c.memory.Ahead(ctx, id, most)
}

func (c *counting) Counts(ctx context.Context) (all []storage.Count, err error) {
	if err = c.read("counts"); err != nil {
		return all, err
	}
	return c.memory.Counts(ctx)
}

func (c *counting) States(ctx context.Context, ids []storage.ID) (all []storage.State, err error) {
	if err = c.read("states"); err != nil {
		return all, err
	}
	return c.memory.States(ctx, ids)
}

func (c *counting) Groups(ctx context.Context, of storage.GroupFilter, after string, limit int) (page storage.GroupPage, err error) {
	if err = c.read("groups"); err != nil {
		return page, err
	}
	return c.memory.Groups(ctx, of, after, limit)
}

func (c *counting) Schedule(ctx context.Context, name string) (r storage.ScheduleRecord, err error) {
	if err = c.read("schedule"); err != nil {
		return r, err
	}
	return c.memory.Schedule(ctx, name)
}

func (c *counting) Schedules(ctx context.Context) (all []storage.ScheduleRecord, err error) {
	if err = c.read("schedules"); err != nil {
		return all, err
	}
	return c.memory.Schedules(ctx)
}

func (c *counting) Ticks(ctx context.Context, name string) (all []storage.Tick, err error) {
	if err = c.read("ticks"); err != nil {
		return all, err
	}
	return c.memory.Ticks(ctx, name)
}

func (c *counting) Entry(ctx context.Context, class, name string) (e storage.Entry, err error) {
	if err = c.read("entry"); err != nil {
		return e, err
	}
	return c.memory.Entry(ctx, class, name)
}

func (c *counting) Entries(ctx context.Context, class, family, after string, limit int) (all []storage.Entry, revision int64, err error) {
	if err = c.read("entries"); err != nil {
		return all, revision, err
	}
	return c.memory.Entries(ctx, class, family, after, limit)
}

func (c *counting) Message(ctx context.Context, id string) (m storage.Message, err error) {
	if err = c.read("message"); err != nil {
		return m, err
	}
	return c.memory.Message(ctx, id)
}

func (c *counting) MessageWith(ctx context.Context, id string, entries ...storage.EntryName) (m storage.Message, revisions []int64, err error) {
	if err = c.read("messagewith"); err != nil {
		return m, revisions, err
	}
	return c.memory.MessageWith(ctx, id, entries...)
}

func (c *counting) Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (all []storage.Message, next string, err error) {
	if err = c.read("messages"); err != nil {
		return all, next, err
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

// stream is somebody who looks at a page.
type stream struct {
	head    http.Header
	status  int
	changed atomic.Int64
	beats   atomic.Int64
	on      func() // at each change
	stop    context.CancelFunc
	ended   chan struct{}
}

func (s *stream) Header() http.Header    { return s.head }
func (s *stream) WriteHeader(status int) { s.status = status }
func (s *stream) Flush()                 {}
func (s *stream) Write(b []byte) (int, error) {
	switch {
	case strings.HasPrefix(string(b), "event: changed\n"):
		s.changed.Add(1)
		if s.on != nil {
			s.on()
		}
	case strings.HasPrefix(string(b), "event: beat\n"):
		s.beats.Add(1)
	}
	return len(b), nil
}

// look has somebody look at a page.
func look(t *testing.T, h http.Handler, page string, on func()) *stream {
	ctx, stop := context.WithCancel(t.Context())
	s := &stream{head: http.Header{}, status: 200, on: on, stop: stop, ended: make(chan struct{})}
	_, text := get(h, "/"+page)
	_, seen, _ := strings.Cut(text, `data-seen="`)
	seen, _, _ = strings.Cut(seen, `"`)
	r := httptest.NewRequestWithContext(ctx, "GET", "/live?"+url.Values{"page": {page}, "seen": {seen}}.Encode(), nil)
	go func() {
		defer close(s.ended)
		h.ServeHTTP(s, r)
	}()
	return s
}

// A hundred viewers cost at most ten reads a second while something is committed each second,
// whatever they look at.
func TestLive_reads(t *testing.T) {
	for name, page := range map[string]func(i int, job errand.ID) string{
		"jobs":   func(_ int, job errand.ID) string { return "job/" + job.String() },
		"lists":  func(i int, _ errand.ID) string { return []string{"jobs", "groups", "schedules", "bulk"}[i%4] },
		"topics": func(int, errand.ID) string { return "topics" },
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
	const seconds = 60
	jobs, all := make([]errand.ID, 100), make([]*stream, 100)
	for i := range jobs {
		jobs[i] = store.commit(t, q)
	}
	for i := range all {
		at := page(i, jobs[i])
		all[i] = look(t, h, at, func() { get(h, "/"+at) })
		defer func() { all[i].stop(); <-all[i].ended }()
	}
	time.Sleep(10500 * time.Millisecond) // between two turns
	store.taken()
	for _, s := range all {
		s.changed.Store(0)
	}
	for i := range seconds {
		store.own.Store(true)
		if _, err := q.Cancel(t.Context(), jobs[i]); err != nil {
			t.Fatal(err)
		}
		store.own.Store(false)
		store.version.Add(1)
		time.Sleep(time.Second)
	}
	reads, sum := store.taken(), 0
	for what, n := range reads {
		if what != "version" { // which reads nothing
			sum += n
		}
	}
	if sum > 10*seconds || sum < seconds {
		t.Errorf("%d reads in %d s: %v", sum, seconds, reads)
	}
	t.Logf("%.1f reads a second: %v", float64(sum)/seconds, reads)
	time.Sleep(2 * time.Minute)
	for i, s := range all {
		switch n := s.changed.Load(); {
		case page(i, jobs[i]) == "":
			if n < seconds-1 || n > seconds {
				t.Errorf("viewer %d of the overview was told %d times of %d changes", i, n, seconds)
			}
		case n == 0 && (i < seconds || !strings.HasPrefix(page(i, jobs[i]), "job/")):
			t.Errorf("viewer %d was not told of a change", i)
		}
	}
}

// While nothing is committed nothing is read but what workers show, and now and then the health.
func TestLive_idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		id := store.commit(t, q)
		var all []*stream
		for i, page := range []string{"", "lanes", "jobs?state=ready", "dead", "job/" + id.String()} {
			all = append(all, look(t, h, page, nil))
			defer func() { all[i].stop(); <-all[i].ended }()
		}
		time.Sleep(12*time.Minute + time.Second) // rates have become 0, and no beat comes now
		store.taken()
		for _, s := range all {
			s.changed.Store(0)
			s.beats.Store(0)
		}
		time.Sleep(10*time.Minute + time.Second)
		reads := store.taken()
		if reads["stats"]+reads["jobs"]+reads["job"]+reads["causes"] > 0 || reads["workers"] > 61 || reads["holds"] > 10 || reads["version"] > 1400 {
			t.Errorf("reads in 10 minutes: %v", reads)
		}
		for i, s := range all {
			if s.changed.Load() != 0 || s.beats.Load() != 120 {
				t.Errorf("viewer %d was told %d times, with %d beats", i, s.changed.Load(), s.beats.Load())
			}
		}
	})
}

// The viewer of a job is told if its row has changed, others are not, and a page of a job that has
// been there for two minutes is told of other changes too, also if others are told in each turn.
func TestLive_rows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		a, b := store.commit(t, q), store.commit(t, q)
		of := [2]*stream{look(t, h, "job/"+a.String(), nil), look(t, h, "job/"+b.String(), nil)}
		defer func() { of[0].stop(); of[1].stop(); <-of[0].ended; <-of[1].ended }()
		told := func(what string, wantA, wantB int64) {
			t.Helper()
			if gotA, gotB := of[0].changed.Swap(0), of[1].changed.Swap(0); gotA != wantA || gotB != wantB {
				t.Errorf("%s: told %d and %d times, want %d and %d", what, gotA, gotB, wantA, wantB)
			}
		}
		time.Sleep(3 * time.Second)
		told("at first", 0, 0)
		if _, err := q.Cancel(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		store.version.Add(1)
		time.Sleep(2 * time.Second)
		told("after a has changed", 1, 0)
		time.Sleep(2 * time.Minute)
		told("after two minutes", 0, 1)
		for range 5 {
			list := look(t, h, "jobs", nil)
			defer func() { list.stop(); <-list.ended }()
		}
		for range 4 * 60 {
			store.version.Add(1)
			time.Sleep(time.Second)
		}
		if a, b := of[0].changed.Load(), of[1].changed.Load(); a == 0 || b == 0 {
			t.Errorf("beside five lists that change: told %d and %d times in four minutes", a, b)
		}
	})
}

// All viewers of jobs that one commit has changed are told, though nothing is committed after it,
// and those of other jobs are not.
func TestLive_manyRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		var jobs []errand.ID
		for range 15 {
			jobs = append(jobs, store.commit(t, q))
		}
		var all []*stream
		for i, id := range jobs {
			all = append(all, look(t, h, "job/"+id.String(), nil))
			defer func() { all[i].stop(); <-all[i].ended }()
		}
		time.Sleep(10500 * time.Millisecond) // between two turns
		for _, id := range jobs[:12] {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		store.version.Add(1)
		time.Sleep(30 * time.Second)
		for i, s := range all {
			if n, want := s.changed.Load(), min(int64(12-i), 1); n != max(want, 0) {
				t.Errorf("the viewer of job %d was told %d times, want %d", i, n, max(want, 0))
			}
		}
	})
}

// Viewers of pages that cost reads of their own are told in turn, at most four a second.
func TestLive_turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := counted(t)
		defer q.Close()
		h := viewers(q, nil)
		var all []*stream
		for i := range 20 {
			all = append(all, look(t, h, "jobs", nil))
			defer func() { all[i].stop(); <-all[i].ended }()
		}
		time.Sleep(2500 * time.Millisecond)
		store.commit(t, q)
		for second := range 6 {
			time.Sleep(time.Second)
			synctest.Wait()
			told := 0
			for _, s := range all {
				if n := s.changed.Load(); n > 1 {
					t.Fatalf("a viewer was told %d times of one change", n)
				} else {
					told += int(n)
				}
			}
			if want := min(4*(second+1), 20); told != want {
				t.Errorf("after %d s %d of 20 were told, want %d", second+1, told, want)
			}
		}
	})
}

// pipes is a listener whose connections hold nothing that the other side has not read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }
