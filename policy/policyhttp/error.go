package policyhttp

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
)

const (
	maxText   = 512     // bytes of an answer that are kept
	maxRead   = 4 << 10 // bytes that are read for it
	minSecret = 4       // bytes of a value that is looked for in an answer
	readTime  = 5 * time.Second
)

// Error returns the error of a delivery that was answered: nil for a status from 200 to
// 299, else a [*policy.StatusError] with the Retry-After of the header, the method and
// URL of the request, where a redirect leads to, and the first 512 bytes of the body if they
// are text.
//
// The URLs are without userinfo, query and fragment. In the text, dots replace what repeats
// word for word a value of the request's query, password, cookies, or Authorization or
// Proxy-Authorization headers; values of less than 4 bytes stay.
//
// Error reads up to 4 KiB of the body, and leaves it to the caller to close it. It closes
// the body itself if that takes longer than 5 s. A date in Retry-After counts from the
// date of the answer, if it has one, so that a device whose clock is wrong waits for the
// right time.
func Error(resp *http.Response) error {
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	err = policy.HTTPError(resp.StatusCode, resp.Header, now)
	e, ok := errors.AsType[*policy.StatusError](err)
	if !ok {
		return err
	}
	if resp.Request != nil {
		e.Method = cmp.Or(resp.Request.Method, http.MethodGet)
		e.URL = publicURL(resp.Request.URL)
	}
	if to, err := resp.Location(); err == nil && e.Status/100 == 3 {
		e.Location = without(publicURL(to), resp.Request)
	}
	e.Text = text(resp)
	return e
}

// publicURL returns u without the parts in which secrets are.
func publicURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	public := *u
	public.User, public.RawQuery, public.ForceQuery, public.Fragment, public.RawFragment = nil, "", false, "", ""
	return public.String()
}

// text returns how the body of an answer begins, or nothing if it is not text.
func text(resp *http.Response) string {
	if resp.Body == nil {
		return ""
	}
	timer := time.AfterFunc(readTime, func() { _ = resp.Body.Close() })
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRead)) // of a body that breaks off: what has come
	s := strings.ToValidUTF8(string(body), "")
	// The limit may have cut the last character.
	if len(body)-len(s) >= utf8.UTFMax || strings.ContainsRune(s, 0) {
		return ""
	}
	s = without(s, resp.Request)
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "")
}

// without returns a text without what repeats a secret of a request.
func without(s string, req *http.Request) string {
	for _, secret := range secrets(req) {
		s = strings.ReplaceAll(s, secret, "...")
	}
	return s
}

// secrets returns the values of a request that must not be kept, longest first.
func secrets(req *http.Request) []string {
	if req == nil {
		return nil
	}
	var all []string
	if req.URL != nil {
		for _, values := range req.URL.Query() {
			for _, v := range values {
				all = append(all, v, url.QueryEscape(v))
			}
		}
		password, _ := req.URL.User.Password()
		all = append(all, password)
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		for _, v := range req.Header.Values(name) {
			_, credentials, _ := strings.Cut(v, " ")
			all = append(all, v, credentials)
		}
	}
	for _, c := range req.Cookies() {
		all = append(all, c.Value)
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}
