// Package policyhttp is for handlers that call a service over HTTP. Its client returns a
// redirect to another host as an answer, and its errors are known to the rules of package
// policy.
//
//	resp, err := client.Do(req) // client is of NewClient
//	if err != nil {
//		return err
//	}
//	defer resp.Body.Close()
//	return policyhttp.Error(resp)
//
// It is a package of its own, so that programs that do not need net/http do not
// become larger by it.
package policyhttp

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxRedirects is how many redirects in a row are followed.
const maxRedirects = 10

// NewClient returns a client for handlers. It differs from the zero [http.Client] in
// four points:
//
//   - Redirects are followed as [CheckRedirect] says. The zero client follows the
//     redirect of a captive portal to its login page, whose status 200 looks as if
//     the work were done.
//   - A connection is made within 10 s, its TLS handshake within 10 s more, and the
//     answer begins within a minute after the request was sent. The zero client
//     waits for an answer as long as it takes. Bodies may take any time in both
//     directions, since uploads over slow networks do: limit them by the Timeout of
//     the handler. A connection of HTTP/2 that has been silent for 30 s is tested,
//     since a device that has changed its network would go on using a dead one.
//   - A request whose time is over before it has a connection has an error of class
//     Unavailable, see [Transport].
//   - Up to 16 idle connections to a host are kept, one for each handler of a worker
//     by default; the zero client keeps 2.
//
// An HTTP proxy that refuses to connect causes the error that [Error] returns for its
// answer. The Transport is a [*Transport]; it and the other fields can be changed
// before the client is used. With a Transport of your own only the first point remains.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{
		CheckRedirect: CheckRedirect,
		Transport: &Transport{&http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer.DialContext,
			ForceAttemptHTTP2:     true,
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second},
			MaxIdleConns:          100,
			MaxIdleConnsPerHost:   16,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: time.Minute,
			ExpectContinueTimeout: time.Second,
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
				a := *answer
				a.Body = nil // which may never end
				return Error(&a)
			},
		}},
	}
}

// CheckRedirect is for the field of the same name of an [http.Client]. A redirect is
// followed if it leads to the scheme, host and port of the first request and keeps its
// method, up to 10 in a row. For any other redirect the client returns the answer with
// its status of 3xx, which the rules of package policy call Unavailable, and no error.
//
// So a POST never becomes a GET, as it does in other clients after 301, 302 and 303:
// the GET would succeed, and what was to be posted would be lost. After 307 and 308,
// which keep the method, a POST is followed. A service that answers 303 to say that a
// POST is done needs a handler that looks at the status before [Error] does.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || req.Method != first.Method || origin(req.URL) != origin(first.URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// origin returns scheme, host and port of a URL in a form that can be compared.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
