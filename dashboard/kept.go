package dashboard

import (
	"bytes"
	"html/template"
	"net/http"
	"sync"
	"time"
)

// kept has pages of looks as they were shown less than a second ago: when something has changed,
// all viewers of a page ask for it at once.
type kept struct {
	mu    sync.Mutex
	pages map[keptKey]keptPage
}

// keptKey is what such a page depends on, beside what its frame shows.
type keptKey struct {
	serial          int64 // of the look
	page, up, query string
	role            Role
}

type keptPage struct {
	at   time.Time
	body template.HTML
}

const (
	keptFor  = time.Second
	mostKept = 64
)

func (x *request) keptKey(l *look) keptKey {
	return keptKey{l.serial, x.page.name, x.up, x.URL.RawQuery, x.who.Role}
}

// serveKept writes a page of a look if it is kept, and reports whether it has.
func (x *request) serveKept(w http.ResponseWriter) bool {
	if !ofLook[x.page.name] || x.URL.Query().Get("format") != "" {
		return false
	}
	l, err := x.look()
	if err != nil {
		return false
	}
	k := &x.b.kept
	k.mu.Lock()
	p, ok := k.pages[x.keptKey(l)]
	k.mu.Unlock()
	if !ok || time.Since(p.at) >= keptFor {
		return false
	}
	frame := x.layout(x.page.title, nil)
	frame.Body = p.body
	x.write(w, http.StatusOK, x.page.template, frame)
	return true
}

// keep renders the content of a page of a look, and keeps it.
func (x *request) keep(frame *layout) {
	if !ofLook[x.page.name] || x.seen == nil {
		return
	}
	var b bytes.Buffer
	if x.page.template.ExecuteTemplate(&b, "content", frame) != nil {
		return // to write the page says why
	}
	frame.Body = template.HTML(b.String()) // as the template has escaped it
	k := &x.b.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pages == nil || len(k.pages) >= mostKept {
		k.pages = map[keptKey]keptPage{}
	}
	k.pages[x.keptKey(x.seen)] = keptPage{time.Now(), frame.Body}
}
