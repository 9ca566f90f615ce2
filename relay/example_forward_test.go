package relay_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// A device passes the jobs of a queue on to a server, and they are done there.
func ExampleForward() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "errand-relay-")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	hub, err := errand.Open(ctx, filepath.Join(dir, "hub.db"), nil)
	check(err)
	defer hub.Close()
	serverPrivate, serverPublic := relay.NewKey()
	h, err := relay.Handler(hub, &relay.HandlerOptions{Server: "jobs.example.org", Key: serverPrivate})
	check(err)
	server := httptest.NewServer(h)
	defer server.Close()
	devicePrivate, devicePublic := relay.NewKey()
	check(relay.PutDevice(ctx, hub, relay.Device{Name: "pump-17", Key: devicePublic, Rights: relay.Rights{Kinds: []string{"measure"}}}))
	keyFile := filepath.Join(dir, "pump-17.key")
	check(os.WriteFile(keyFile, []byte(devicePrivate), 0o600))

	q, err := errand.Open(ctx, filepath.Join(dir, "device.db"), nil)
	check(err)
	defer q.Close()
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"up"}})
	err = relay.Forward(w, &relay.Options{
		Queue: "up", URL: server.URL, Server: "jobs.example.org", Device: "pump-17",
		Key: relay.KeyFile(keyFile), ServerKey: serverPublic,
	})
	check(err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()

	for _, kind := range []string{"measure", "alarm"} {
		e, err := q.Enqueue(ctx, errand.RawArgs{OfKind: kind, JSON: []byte(`{"bar":4.2}`)}, &errand.JobOptions{Queue: "up"})
		check(err)
		_, _ = errand.Await[any](ctx, q, e.ID) // a job that is passed on has no result
		job, err := q.Job(ctx, e.ID)
		check(err)
		fmt.Println(kind, "on the device:", job.State)
	}
	stop()
	check(<-ended)
	page, err := hub.Jobs(ctx, errand.JobFilter{}, nil)
	check(err)
	for _, job := range page.Jobs {
		fmt.Println(job.Kind, "on the server:", job.State, "from", job.Origin.Device)
	}
	// Output:
	// measure on the device: done
	// alarm on the device: dead
	// measure on the server: ready from pump-17
}
