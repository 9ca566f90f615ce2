package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
)

// asks reports whether a request is for what a page shows now.
func (x *request) asks() bool {
	return x.Header.Get(partHeader) != "" && x.page.lives() && x.URL.Query().Get("format") == ""
}

// lives reports whether a page changes by itself.
func (p *page) lives() bool { return !p.posts && !p.still }

var (
	errCrowded = &refusal{status: http.StatusServiceUnavailable, text: "Too many pages are open."}
	errPanic   = &refusal{status: http.StatusInternalServerError, text: "This page cannot be shown; the log of the program says why."}
)

// tell answers an open page: what it shows now, or that this is what it has.
func (x *request) tell(w http.ResponseWriter) {
	s, f := &x.b.live, x.b.live.of(x)
	if f == nil {
		x.fail(w, errCrowded)
		return
	}
	v, as, err := s.now(x.Context())
	if err != nil && !ofLook[x.page.name] { // a look says since when it is the last one
		x.fail(w, err)
		return
	}
	x.version, x.as = v, as
	clock, nav := x.b.q.Clock(), &layout{Up: cmp.Or(x.up, "./"), Page: x.page.name, Section: x.page.in, navSaid: navSaid{Nav: nav}}
	nav.shows(x.around())                 // a look that is the newest knows so now
	sent := x.Header.Get("If-None-Match") // proxies that compress add to it
	has := func() bool { return f.tag != "" && strings.Contains(sent, f.tag+".") }
	s.mu.Lock()
	if busy := f.busy; busy != nil {
		s.mu.Unlock()
		select {
		case <-busy:
		case <-x.Context().Done():
			return
		}
		s.mu.Lock()
	} else {
		newest := err == nil && f.newest(v, clock)
		if newest && !f.unsure && f.checked.Before(as) {
			f.checked = as
		}
		last := f.print // of a row that is looked at
		since := time.Since(f.at)
		render := f.err == nil && f.text == "" && !has() && since >= f.each
		if !newest && since >= s.wait(f, v) {
			render = true
		}
		if render {
			last = 0
		}
		if render || !newest && s.looks(f) {
			f.busy = make(chan struct{})
			s.mu.Unlock()
			x.renew(f, last)
			s.mu.Lock()
		}
	}
	shown, same := *f, has()
	s.mu.Unlock()
	switch {
	case shown.err != nil:
		x.fail(w, shown.err)
		return
	case shown.text == "" && !same:
		x.fail(w, errCrowded)
		return
	}
	tag := shown.tag + "." + nav.NavTag
	head := w.Header()
	head.Set("Vary", partHeader)
	head.Set(pageHeader, x.page.name)
	head.Set(nowHeader, x.b.q.Clock().Now.UTC().Format(time.RFC3339Nano))
	head.Set(ageHeader, strconv.FormatInt(time.Since(shown.checked).Milliseconds(), 10))
	head.Set("ETag", `"`+tag+`"`)
	if strings.Contains(sent, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	var b bytes.Buffer
	if !same {
		b.WriteString(shown.text)
	}
	if err := x.page.template.ExecuteTemplate(&b, "nav", nav); err != nil {
		x.fail(w, err)
		return
	}
	head.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // nobody is left who could be told
}

// renew renders a fragment anew, unless it is of a job whose row is the one that it has shown: last is its
// print, 0 if it is rendered in any case. It belongs to nobody: a viewer who goes away spoils it for no
// other.
func (x *request) renew(f *fragment, last uint64) {
	ctx, stop := withTimeout(context.WithoutCancel(x.Context()), readFor)
	defer stop()
	s, begun := &x.b.live, time.Now()
	y := *x
	y.Request, y.open = x.WithContext(ctx), true
	err := error(errPanic)
	defer func() {
		if err == errPanic { //nolint:errorlint // it is returned as it is
			x.b.o.Logger.Error("errand: a page of the dashboard panicked", "path", x.URL.Path, "panic", recover(), "stack", string(debug.Stack()))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		close(f.busy)
		f.busy = nil
		f.each = min(max(renderEach, time.Since(begun)*renderPart), renderMost)
		if err == nil {
			return
		}
		f.err, f.at, f.version, f.plausible, f.freshness = err, begun, x.version, x.b.q.Clock().Plausible, freshness{}
		switch status := refused(err).status; {
		case status == http.StatusInternalServerError:
			f.till(unsureEach)
		case status > http.StatusInternalServerError:
			f.till(0)
		}
	}()
	if last != 0 && y.same(last) {
		s.mu.Lock()
		f.rows = begun
		s.mu.Unlock()
		err = nil
		return
	}
	err = y.renderPart(f)
	x.b.looks.met(err)
}

// same reports whether the job is as it was when it had a print.
func (x *request) same(print uint64) bool {
	id, err := errand.ParseID(x.id)
	if err != nil {
		return false
	}
	j, err := x.b.q.Job(x.Context(), id)
	return err == nil && x.b.live.printOf(&j, x.around()) == print
}

// renderPart reads a page and renders it into its fragment.
func (x *request) renderPart(f *fragment) error {
	x.starts()
	c, err := x.page.read(x)
	if err == nil && c.to != "" {
		err = &refusal{status: http.StatusNotFound, text: "This page leads to another one now."}
	}
	if err != nil {
		return err
	}
	return x.fill(f, x.frame(c))
}

// starts begins to read a page, which says later when it may change.
func (x *request) starts() {
	x.start = time.Now()
	x.freshness = freshness{until: x.start.Add(unsureEach), unsure: true}
}

// fill renders the content of a page into its fragment, if it has one, unless that shows what was read
// later.
func (x *request) fill(f *fragment, frame *layout) error {
	var b bytes.Buffer
	if err := x.page.template.ExecuteTemplate(&b, "main", frame); err != nil {
		return err
	}
	main := b.String()
	b.Reset()
	if err := x.page.template.ExecuteTemplate(&b, "head", frame); err != nil {
		return err
	}
	s := &x.b.live
	n := fragment{text: b.String() + main, at: x.start, each: renderEach, checked: x.start, version: x.version, freshness: x.freshness, plausible: frame.Clock.Plausible, print: x.print}
	if x.seen != nil {
		n.checked = x.seen.at
		if x.seen.known { // a look that takes long is not made again for each version
			n.version = min(n.version, x.seen.version)
		}
	}
	n.tag = s.tagOf(n.text)
	frame.Body, frame.Tag = template.HTML(main), n.tag // as the template has escaped it
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil || f.at.After(x.start) {
		return nil
	}
	n.page, n.asked, n.busy = f.page, f.asked, f.busy
	*f = n
	s.trim(f)
	return nil
}
