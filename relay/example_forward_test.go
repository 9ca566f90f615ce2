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

// Measure and Alarm are args.
type (
	Measure struct {
		Bar float64 `json:"bar"`
	}
	Alarm struct{}
)

func (Measure) Kind() string { return "measure" }
func (Alarm) Kind() string   { return "alarm" }

// A device passes the jobs of a queue on to a server, and they are done there.
func ExampleForward() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "errand-relay-")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	hub, err := errand.Open(ctx, filepath.Join(dir, "hub.db"), nil)
	check(err)
	defer hub.Close()
	for _, end := range []string{"hub", "pump-17"} {
		check(makeKeys(filepath.Join(dir, end)))
	}
	serverPrivate, err := os.ReadFile(filepath.Join(dir, "hub.key"))
	check(err)
	h, err := relay.Handler(hub, &relay.HandlerOptions{Server: "jobs.example.org", Key: string(serverPrivate)})
	check(err)
	server := httptest.NewServer(h)
	defer server.Close()
	devicePublic, err := os.ReadFile(filepath.Join(dir, "pump-17.pub"))
	check(err)
	check(relay.PutDevice(ctx, hub, relay.Device{Name: "pump-17", Key: string(devicePublic), Rights: relay.Rights{Kinds: []string{"measure"}}}))

	q, err := errand.Open(ctx, filepath.Join(dir, "device.db"), nil)
	check(err)
	defer q.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)

	serverPublic, err := os.ReadFile(filepath.Join(dir, "hub.pub")) // copied from the server
	check(err)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"up"}})
	err = relay.Forward(w, &relay.Options{
		Queue: "up", URL: server.URL + "/relay", Server: "jobs.example.org", Device: "pump-17",
		Key: relay.KeyFile(filepath.Join(dir, "pump-17.key")), ServerKey: string(serverPublic),
	})
	check(err)
	go func() { ended <- w.Run(running) }()

	measured, err := q.Enqueue(ctx, Measure{Bar: 4.2}, &errand.JobOptions{Queue: "up"})
	check(err)
	alarmed, err := q.Enqueue(ctx, Alarm{}, &errand.JobOptions{Queue: "up"})
	check(err)
	for _, id := range []errand.ID{measured.ID, alarmed.ID} {
		_, _ = errand.Await[any](ctx, q, id) // a job that is passed on has no result
		job, err := q.Job(ctx, id)
		check(err)
		fmt.Println(job.Kind, "on the device:", job.State)
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
