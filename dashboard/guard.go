package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand"
)

// contentPolicy lets a page load nothing but its own style and script, and send its forms nowhere else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard sets the headers of all answers. The referrer is kept for the same origin, as browsers
// send "Origin: null" with forms of a page without one.
func guard(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// The limits of what an address may have.
const (
	mostParams = 40
	longest    = 1000 // bytes of a value
)

// check returns an error for parameters that are too many, too long or no text, or that the page
// does not take.
func (x *request) check() error {
	if len(x.URL.RawQuery) > mostParams*longest {
		return &refusal{status: http.StatusRequestURITooLong, text: "The address is too long."}
	}
	query, err := url.ParseQuery(x.URL.RawQuery)
	if err != nil {
		return &refusal{status: http.StatusBadRequest, text: "The address is not well formed."}
	}
	n := 0
	for name, values := range query {
		for _, v := range values {
			n++
			switch {
			case len(v) > longest:
				return &refusal{status: http.StatusBadRequest, text: "A parameter of the address is longer than " + strconv.Itoa(longest) + " bytes: " + strconv.Quote(name)}
			case !utf8.ValidString(v) || !utf8.ValidString(name):
				return &refusal{status: http.StatusBadRequest, text: "A parameter of the address is no text: " + strconv.Quote(name)}
			}
		}
	}
	if n > mostParams {
		return &refusal{status: http.StatusBadRequest, text: "The address has more than " + strconv.Itoa(mostParams) + " parameters."}
	}
	return x.page.checkNames(query)
}

// checkNames returns an error for a parameter that the page does not take: a condition with a
// misspelt name would select all.
func (p *page) checkNames(query url.Values) error {
	for _, name := range sortedKeys(query) {
		if name == "format" || slices.Contains(p.takes, name) || strings.HasPrefix(name, argPrefix) && slices.Contains(p.takes, "arg") {
			continue
		}
		e := &refusal{status: http.StatusBadRequest, text: "This page takes no parameter " + strconv.Quote(name) + ".", remedy: "It takes format=json, and none that selects something."}
		if len(p.takes) > 0 {
			e.remedy = "It takes " + strings.Join(p.takes, ", ") + "."
		}
		return e
	}
	for _, v := range query["format"] {
		if v != "json" && v != "" {
			return &errand.FieldError{Field: "format", Value: v, Limit: "must be json, or be left out"}
		}
	}
	return nil
}

// sayEach is how often the log says that nobody may enter.
const sayEach = time.Minute

// sayClosed logs that nobody may enter, and what to write.
func (b *board) sayClosed() {
	now, last := time.Now().UnixNano(), b.said.Load()
	if (last == 0 || now-last >= int64(sayEach)) && b.said.CompareAndSwap(last, now) {
		b.o.Logger.Warn("errand: a dashboard without Options.Auth lets nobody in: set it to dashboard.Basic, FromHeader or Anyone")
	}
}

// toSlash sends a browser from a path that was stripped to nothing to the one with a slash, as the
// links of pages are relative to that.
func toSlash(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	at, query, asked := strings.Cut(r.RequestURI, "?")
	last := at[strings.LastIndexByte(at, '/')+1:]
	if last == "" {
		return false
	}
	if asked {
		query = "?" + query
	}
	w.Header().Set("Location", "./"+last+"/"+query) // http.Redirect would make it absolute by the stripped path
	w.WriteHeader(http.StatusPermanentRedirect)
	return true
}

// noPage returns the refusal of a path that has no page.
func noPage(r *http.Request) error {
	e := &refusal{status: http.StatusNotFound, text: "There is no such page.",
		remedy: `Check the address: the first page has links to all others. If the dashboard itself should be here, its path has to end in "/".`}
	if p := strings.TrimSuffix(r.Pattern, "{$}"); p != "" && !strings.HasSuffix(p, "/") && !strings.HasSuffix(p, "...}") {
		e.text = "The dashboard is not mounted as it should be."
		e.remedy = `Its path has to end in "/", in the program: mux.Handle(` + strconv.Quote(p+"/") + `, ...).`
	}
	return e
}

func itoa(n int) string { return strconv.Itoa(n) }

// checkForm returns an error for a form that does not come from a page of the dashboard, or is too
// large.
func (x *request) checkForm(w http.ResponseWriter) error {
	if err := x.b.cross.Check(x.Request); err != nil {
		from, host := cut(x.Header.Get("Origin"), 255), cut(x.Host, 255)
		return &refusal{status: http.StatusForbidden, text: "This form comes from another site.", cause: err,
			remedy: "It comes from " + cmp.Or(from, "a page without an address") + ", and was sent to " + host + ". If both are the dashboard, a proxy has changed the host: " +
				"let it pass on Host, add the address that you see to dashboard.Options.Origins, or name its host by errand dashboard --host."}
	}
	if x.URL.RawQuery != "" {
		return &refusal{status: http.StatusBadRequest, text: "A form has no query."}
	}
	x.Body = http.MaxBytesReader(w, x.Body, mostForm)
	if err := x.ParseForm(); err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return &refusal{status: http.StatusRequestEntityTooLarge, text: "The form is larger than " + size(mostForm) + ".", remedy: "The command errand takes larger args.", cause: err}
		}
		return &refusal{status: http.StatusBadRequest, text: "The form is not well formed.", cause: err}
	}
	for name, values := range x.PostForm {
		for _, v := range values {
			if !utf8.ValidString(v) || !utf8.ValidString(name) {
				return &refusal{status: http.StatusBadRequest, text: "A field of the form is no text: " + strconv.Quote(name)}
			}
		}
	}
	return nil
}
