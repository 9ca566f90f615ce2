package cookbook_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
)

// A device waits for the carrier of its modem, and then for the answer of its server.
// At first a captive portal answers everything.
func Example_gates() {
	var loggedIn atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loggedIn.Load() {
			http.Redirect(w, r, "http://portal.example/login", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()

	carrier := new(errand.Switch)
	carrier.Close("no carrier")
	online := must(gate.HTTP(server.URL+"/online", nil))
	both := must(gate.All(carrier, online))

	_, reason, changed := both.State()
	fmt.Println("closed:", reason)
	carrier.Open() // the modem says so
	<-changed

	_, _, changed = both.State() // makes the first request
	<-changed
	_, reason, changed = both.State()
	fmt.Println("closed:", reason)

	loggedIn.Store(true)
	online.Recheck() // or wait for the next request
	<-changed
	open, _, _ := both.State()
	fmt.Println("open:", open)
	// Output:
	// closed: no carrier
	// closed: captive portal: status 302 instead of 204
	// open: true
}
