package apitest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

// ailing is a store in a condition of its own.
type ailing struct {
	storage.Store
	c     storage.Condition
	err   error
	holds []storage.HoldState
}

func (s *ailing) Check(context.Context) (storage.Condition, error) { return s.c, s.err }

func (s *ailing) Holds(context.Context, time.Time) ([]storage.HoldState, error) { return s.holds, nil }

func TestQueue_Health(t *testing.T) {
	now := time.Now()
	lane := storage.Lane{Queue: "mail", Kind: "send"}
	due := func(age time.Duration) storage.Condition {
		return storage.Condition{Oldest: []storage.LaneDue{{Lane: lane, DueAt: now.Add(-age)}}}
	}
	held := func(reason string, age time.Duration) []storage.HoldState {
		return []storage.HoldState{{Lane: lane, Reason: reason, Since: now.Add(-age), Detail: "refused"}}
	}
	for name, c := range map[string]struct {
		s           ailing
		o           *errand.HealthOptions
		live, ready bool
		want        string // codes
	}{
		"well":              {s: ailing{c: due(time.Minute)}, live: true, ready: true},
		"closed":            {s: ailing{err: storage.ErrClosed}, want: "closed"},
		"damaged":           {s: ailing{c: storage.Condition{Write: storage.ErrCorrupt}}, live: true, want: "damage"},
		"full":              {s: ailing{c: storage.Condition{Write: storage.ErrFull, Low: true}}, live: true, want: "full space"},
		"busy":              {s: ailing{c: storage.Condition{Write: storage.ErrBusy}}, live: true, want: "write"},
		"late":              {s: ailing{c: storage.Condition{Write: context.DeadlineExceeded}}, live: true, want: "write"},
		"cannot be read":    {s: ailing{err: storage.ErrIO}, live: true, want: "write"},
		"nearly full":       {s: ailing{c: storage.Condition{Low: true, Free: 5 << 20}}, live: true, ready: true, want: "space"},
		"overdue":           {s: ailing{c: due(2 * time.Hour)}, live: true, ready: true, want: "overdue"},
		"overdue for less":  {s: ailing{c: due(2 * time.Hour)}, o: &errand.HealthOptions{MaxAge: 3 * time.Hour}, live: true, ready: true},
		"overdue for more":  {s: ailing{c: due(time.Minute)}, o: &errand.HealthOptions{MaxAge: time.Second}, live: true, ready: true, want: "overdue"},
		"due for any time":  {s: ailing{c: due(9999 * time.Hour)}, o: &errand.HealthOptions{MaxAge: -1}, live: true, ready: true},
		"held, so not due":  {s: ailing{c: due(2 * time.Hour), holds: held("paused", 2*time.Hour)}, live: true, ready: true},
		"brake":             {s: ailing{holds: held("brake", time.Minute)}, live: true, ready: true, want: "brake"},
		"away for a day":    {s: ailing{holds: held("unavailable", 24*time.Hour)}, live: true, ready: true},
		"away for too long": {s: ailing{holds: held("unavailable", 8*24*time.Hour)}, live: true, ready: true, want: "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Store = storagetest.NewMemory().OpenBare()
			q, err := errand.New(t.Context(), &c.s, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			h := q.Health(t.Context(), c.o)
			var codes []string
			for _, r := range h.Reasons {
				codes = append(codes, string(r.Code))
				if r.Text == "" || strings.Contains(r.Text, "%!") {
					t.Errorf("the text is %q", r.Text)
				}
				if r.Code == errand.HealthBrake && (r.Queue != "mail" || r.Kind != "send" || !r.Since.Equal(now.Add(-time.Minute)) || !strings.HasSuffix(r.Text, ": refused")) {
					t.Errorf("%+v", r)
				}
			}
			if got := strings.Join(codes, " "); h.Live != c.live || h.Ready != c.ready || got != c.want {
				t.Errorf("%+v, want live %t, ready %t, %q", h, c.live, c.ready, c.want)
			}
			if b, err := json.Marshal(h); err != nil || strings.Contains(string(b), "0001-01-01") {
				t.Errorf("as JSON %s, %v", b, err)
			}
		})
	}
}

// A clock that cannot be right leaves the queue ready.
func TestQueue_Health_Clock(t *testing.T) {
	q := openQueue(t, &errand.Options{Clock: func() time.Time { return time.Unix(1000, 0) }})
	if h := q.Health(t.Context(), nil); !h.Ready || len(h.Reasons) != 1 || h.Reasons[0].Code != errand.HealthClock {
		t.Errorf("%+v", h)
	}
}

// Of a file: Health writes nothing to it, and knows a lock, a loss and the end.
func TestQueue_Health_File(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s, err := sqlite.Open(path, &sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	q, err := errand.New(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, note{}, nil)
	before, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if h := q.Health(t.Context(), nil); !h.Live || !h.Ready || len(h.Reasons) != 0 {
			t.Errorf("%+v", h)
		}
	}
	if after, err := os.Stat(path + "-wal"); err != nil || after.Size() != before.Size() || after.ModTime() != before.ModTime() {
		t.Errorf("the log was written: %v, %v before (%v)", after, before, err)
	}
	busy := errors.New("enough")
	if err := q.Tx(t.Context(), func(*sql.Tx) error {
		if h := q.Health(t.Context(), nil); !h.Live || h.Ready || len(h.Reasons) != 1 || h.Reasons[0].Code != errand.HealthWrite {
			t.Errorf("beside a transaction: %+v", h)
		}
		return busy
	}); !errors.Is(err, busy) {
		t.Fatal(err)
	}
	if h := q.Health(t.Context(), nil); !h.Ready {
		t.Errorf("after the transaction: %+v", h)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if h := q.Health(t.Context(), nil); h.Live || h.Ready || len(h.Reasons) != 1 || h.Reasons[0].Code != errand.HealthClosed {
		t.Errorf("after Close: %+v", h)
	}
}

// A logger that does not return cannot say so itself: Health names it, and since when,
// until it has returned.
//
//errand:shows a logger that stalls | | Health names it, and since when, until it has returned
func TestQueue_Health_Log(t *testing.T) {
	for whose, set := range map[string]func(log *slog.Logger, o *errand.Options, w *errand.WorkerOptions){
		"the queue":  func(log *slog.Logger, o *errand.Options, _ *errand.WorkerOptions) { o.Logger = log },
		"the worker": func(log *slog.Logger, _ *errand.Options, w *errand.WorkerOptions) { w.Logger = log },
	} {
		t.Run(whose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // else the clock cannot be right
				b := newBlocker()
				o, wo := errand.Options{Logger: quiet}, errand.WorkerOptions{}
				set(slog.New(blockedHandler{b}), &o, &wo)
				q, err := errand.New(t.Context(), storagetest.NewMemory().Open(), &o)
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				w := errand.NewWorker(q, &wo)
				errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
				stop := run(t, w)
				b.begin()
				enqueue(t, q, note{}, nil)
				<-b.begun
				since := time.Now()
				enqueue(t, q, note{}, nil)
				time.Sleep(time.Second - 1)
				if h := q.Health(t.Context(), nil); len(h.Reasons) > 0 {
					t.Errorf("before a second is over: %+v", h)
				}
				time.Sleep(time.Second)
				h := q.Health(t.Context(), nil)
				if !h.Live || !h.Ready || len(h.Reasons) != 1 || h.Reasons[0].Code != errand.HealthLog || !h.Reasons[0].Since.Equal(since) ||
					h.Reasons[0].Text != "the logger has not returned for 2s; records that wait: 1, dropped: 0" {
					t.Errorf("while it blocks since %v: %+v", since, h)
				}
				b.end()
				synctest.Wait()
				if h := q.Health(t.Context(), nil); len(h.Reasons) > 0 {
					t.Errorf("once it has returned: %+v", h)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
