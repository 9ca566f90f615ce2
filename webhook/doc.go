// Package webhook sends messages to the endpoints of others over HTTP, and verifies
// those that are received. Requests are signed as Standard Webhooks demands, version
// 1.0.0 of its specification, https://www.standardwebhooks.com: any of its libraries
// verifies what is sent, and [Verify] accepts what others send by that standard.
//
// [Webhooks] keeps endpoints in the file of a queue. A message is sent in a transaction,
// and delivered to each endpoint by a job of its own:
//
//	hooks, err := webhook.New(q, nil)
//	e, secret, err := hooks.Create(ctx, webhook.Endpoint{URL: "https://ada.example/in"}, webhook.Secret{})
//	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}})
//	hooks.Handle(w)
//	_, err = hooks.SendAll(ctx, webhook.Message{Type: "order.paid", Body: body})
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
