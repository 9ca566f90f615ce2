package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// faulty is a store whose lists of jobs cannot be read.
type faulty struct {
	*sqlite.Store
	err atomic.Pointer[error] // nil: they can
}

func (s *faulty) Jobs(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
	if err := s.err.Load(); err != nil {
		return storage.Page{}, *err
	}
	return s.Store.Jobs(ctx, f, after, limit)
}

// A page that cannot be shown and an action that cannot be done say the same of an error.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		err          error
		status       int
		text, remedy string
	}{
		"corrupt":   {fmt.Errorf("%w: page 7", errand.ErrCorrupt), 503, "The file is damaged.", "errand doctor says what is damaged"},
		"full":      {errand.ErrFull, 503, "The disk is full.", "Make room"},
		"busy":      {errand.ErrBusy, 503, "Another program holds the file.", "Try again."},
		"read-only": {errand.ErrReadOnly, 503, "The file cannot be written.", "open for reading only"},
		"too new":   {errand.ErrTooNew, 503, strings.TrimPrefix(errand.ErrTooNew.Error(), "errand: "), "newer version of errand"},
		"closed":    {errand.ErrClosed, 503, "The queue is closed.", "Start the program again"},
		"not found": {errand.ErrNotFound, 404, "It is not there any more.", "It may have been deleted since."},
		"field":     {&errand.FieldError{Field: "size", Value: "x", Limit: "must be a number"}, 400, `size "x": must be a number`, "Correct it"},
		"fields":    {errors.Join(&errand.FieldError{Field: "a", Value: 1, Limit: "is odd"}, &errand.FieldError{Field: "b", Value: 2, Limit: "is even"}), 400, "a 1: is odd; b 2: is even", "Correct it"},
		"other":     {fmt.Errorf("it went wrong: %w", errand.ErrIO), 503, "it went wrong: input/output error", "See errand doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &faulty{}
			q := openOn(t, func(file *sqlite.Store) storage.Store {
				store.Store = file
				return store
			})
			fill(t, q)
			h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Operator), Logger: quiet,
				Writer: func(context.Context) (*errand.Queue, error) { return nil, c.err }})
			action := confirm(t, h, asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}}), "Nothing was done.")
			store.err.Store(&c.err)
			status, page := get(h, "/jobs")
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			for where, text := range map[string]string{"a page": page, "an action": action} {
				if text = html.UnescapeString(text); !strings.Contains(text, c.text) || !strings.Contains(text, c.remedy) || strings.Contains(text, "errand: ") {
					t.Errorf("%s does not say %q and %q: %s", where, c.text, c.remedy, plain(text))
				}
			}
		})
	}
}

// An address that is wrong is told of in words for people, with what to do.
func TestFaults_address(t *testing.T) {
	h := as(open(t), dashboard.Viewer)
	for path, want := range map[string]string{"/job/xx": `id "xx": must have`, "/jobs?state=odd": `state "odd": must be one of`, "/jobs?due_from=x": `due_from "x": must be a time`} {
		status, text := get(h, path)
		if text = html.UnescapeString(text); status != 400 || !strings.Contains(text, want) || !strings.Contains(text, "Correct it") || strings.Contains(text, "errand: ") {
			t.Errorf("%s: %d %s", path, status, plain(text))
		}
	}
}

// Damage that a page or an action has met is told of on the overview and on the page about the file.
func TestFaults_damage(t *testing.T) {
	damaged := fmt.Errorf("%w: page 7", errand.ErrCorrupt)
	for name, meet := range map[string]func(*testing.T, *faulty, http.Handler){
		"page": func(t *testing.T, store *faulty, h http.Handler) {
			store.err.Store(&damaged)
			if status, text := get(h, "/jobs"); status != 503 {
				t.Errorf("%d %s", status, plain(text))
			}
			store.err.Store(nil)
		},
		"action": func(t *testing.T, _ *faulty, h http.Handler) {
			confirm(t, h, asks(t, h, url.Values{"do": {"release"}, "queue": {"default"}}), "The file is damaged.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &faulty{}
			q := openOn(t, func(file *sqlite.Store) storage.Store {
				store.Store = file
				return store
			})
			fill(t, q)
			h := dashboard.Handler(q, &dashboard.Options{Auth: who("ann", dashboard.Operator), Logger: quiet,
				Writer: func(context.Context) (*errand.Queue, error) { return nil, damaged }})
			says := func(damaged bool) {
				t.Helper()
				for _, path := range []string{"/", "/health", "/?format=json", "/health?format=json"} {
					status, text := get(h, path)
					said := strings.Contains(text, "database is damaged: page 7") && (strings.Contains(path, "json") || strings.Contains(text, "The file is damaged") && strings.Contains(text, "errand doctor"))
					if status != 200 || said != damaged {
						t.Errorf("%s: %d, damaged %t: %s", path, status, damaged, plain(text))
					}
				}
			}
			says(false)
			meet(t, store, h)
			says(true)
		})
	}
}
