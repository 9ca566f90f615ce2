package badnet

import (
	"io"
	"log" //nolint:depguard // the type of a field of net/http
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Proxy returns a handler that passes requests on to the server at the address that to returns, through
// n. A client whose request or answer was lost finds its connection cut.
func (n *Network) Proxy(to func() *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to()) },
		Transport:    n,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
}
