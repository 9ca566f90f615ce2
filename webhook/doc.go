// Package webhook sends messages to the endpoints of others over HTTP, and verifies
// those that are received. Requests are signed as Standard Webhooks demands, version
// 1.0.0 of its specification, https://www.standardwebhooks.com: any of its libraries
// verifies what is sent, and [Verify] accepts what others send by that standard.
//
// A receiver verifies a request before it looks at the body:
//
//	body, err := webhook.Verify(r, secrets, 0)
//	if err != nil {
//		http.Error(w, "not verified", http.StatusBadRequest)
//		return
//	}
//
// See docs/webhooks.md.
package webhook
