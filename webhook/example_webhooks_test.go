package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	q, err := errand.Open(ctx, filepath.Join(dir, "hooks.db"), &errand.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	hooks, err := webhook.New(q, &webhook.Options{
		// For a receiver on the same machine; leave both out in a program.
		AllowHTTP:      true,
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	received := make(chan string)
	var secret webhook.Secret
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := webhook.Verify(r, []webhook.Secret{secret}, 0)
		received <- fmt.Sprint(string(body), " ", err)
	}))
	defer receiver.Close()

	// Once for each customer: the secret is for the customer.
	_, secret, err = hooks.Create(ctx, webhook.Endpoint{ID: "ada", URL: receiver.URL, EventTypes: []string{"order.*"}}, webhook.Secret{})
	if err != nil {
		panic(err)
	}

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{webhook.Queues}})
	hooks.Handle(w)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	// To all endpoints that take its type.
	sent, err := hooks.SendAll(ctx, webhook.Message{Type: "order.paid", Body: []byte(`{"order":7}`)})
	fmt.Println("sent to", sent.Endpoints, err)
	fmt.Println("received", <-received)

	stop()
	fmt.Println(<-ended, q.Close())
	// Output:
	// sent to [ada] <nil>
	// received {"order":7} <nil>
	// <nil> <nil>
}

// An endpoint that is disabled loses nothing: messages wait for it.
func ExampleWebhooks_Disable() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	q, err := errand.Open(ctx, filepath.Join(dir, "hooks.db"), nil)
	if err != nil {
		panic(err)
	}
	hooks, err := webhook.New(q, nil)
	if err != nil {
		panic(err)
	}
	defer hooks.Close()
	if _, _, err := hooks.Create(ctx, webhook.Endpoint{ID: "ada", URL: "https://ada.example/in"}, webhook.Secret{}); err != nil {
		panic(err)
	}

	err = hooks.Disable(ctx, "ada", "Ada moves house")
	fmt.Println(err)
	e, err := hooks.Endpoint(ctx, "ada")
	fmt.Println(e.State, "since", time.Since(e.Since) < time.Minute, e.Reason, err)
	sent, err := hooks.Send(ctx, webhook.Message{Body: []byte("{}")}, "ada")
	fmt.Println(len(sent.Jobs), err)
	was, err := hooks.Enable(ctx, "ada")
	fmt.Println(was, err)
	if err := q.Close(); err != nil {
		panic(err)
	}
	// Output:
	// <nil>
	// disabled since true Ada moves house <nil>
	// 1 <nil>
	// true <nil>
}

// A program says at each start which endpoints it has. Their secrets stay, and what is not the same
// is changed.
func ExampleWebhooks_Declare() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	q, err := errand.Open(ctx, filepath.Join(dir, "hooks.db"), nil)
	if err != nil {
		panic(err)
	}
	hooks, err := webhook.New(q, &webhook.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer hooks.Close()

	for _, url := range []string{"https://ada.example/in", "https://ada.example/in", "https://ada.example/im"} {
		e, secret, err := hooks.Declare(ctx, webhook.Endpoint{ID: "ada", URL: url}, webhook.Secret{})
		fmt.Println(e.URL, e.State, secret, err)
	}
	if err := q.Close(); err != nil {
		panic(err)
	}
	// Output:
	// https://ada.example/in enabled whsec_... <nil>
	// https://ada.example/in enabled whsec_... <nil>
	// https://ada.example/im enabled whsec_... <nil>
}
