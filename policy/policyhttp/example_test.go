package policyhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/policy/policyhttp"
)

// A captive portal redirects every request to its login page. The client does not
// follow, so that the page is not taken for the answer of the service.
func ExampleNewClient() {
	portal := httptest.NewServer(http.RedirectHandler("http://portal.test/login", http.StatusFound))
	defer portal.Close()
	client := policyhttp.NewClient()
	resp, err := client.Post(portal.URL+"/orders?token=secret", "application/json", strings.NewReader("{}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	err = policyhttp.Error(resp)
	fmt.Println(strings.ReplaceAll(err.Error(), portal.URL, "https://shop.example"))
	fmt.Println(policy.Classify(err))
	// Output:
	// POST https://shop.example/orders: http status 302 to http://portal.test/login
	// unavailable
}
