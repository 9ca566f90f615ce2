package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// queue opens a queue in a folder of its own.
func queue() (q *errand.Queue, end func()) {
	dir, err := os.MkdirTemp("", "errand-example-")
	if err != nil {
		panic(err)
	}
	q, err = errand.Open(context.Background(), filepath.Join(dir, "jobs.db"), nil)
	if err != nil {
		panic(err)
	}
	return q, func() {
		_ = q.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleHandler() {
	q, end := queue()
	defer end()
	users := map[string]dashboard.User{
		"ann": {Password: os.Getenv("ANN_PASSWORD"), Role: dashboard.Admin}, // without a password nobody enters
		"ops": {Password: "correct horse", Role: dashboard.Operator},
	}
	mux := http.NewServeMux()
	mux.Handle("/errand/", dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Basic(users)}))

	for _, password := range []string{"", "guess", "correct horse"} {
		r, w := httptest.NewRequest("GET", "/errand/jobs", nil), httptest.NewRecorder()
		r.SetBasicAuth("ops", password)
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 401
	// 200
}

func ExampleFromHeader() {
	q, end := queue()
	defer end()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}
	auth := dashboard.FromHeader("X-Forwarded-User", proxies, func(name string) dashboard.Role {
		if name == "ann@example.com" {
			return dashboard.Admin
		}
		return dashboard.Viewer
	})
	h := dashboard.Handler(q, &dashboard.Options{Auth: auth, Origins: []string{"https://ops.example.com"}})

	for _, from := range []string{"10.0.0.7:4711", "192.0.2.9:4711"} {
		r, w := httptest.NewRequest("GET", "/errand/", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		r.Header.Set("X-Forwarded-User", "ann@example.com")
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 403
}
