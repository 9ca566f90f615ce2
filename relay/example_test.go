package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// A server takes the jobs of its devices by HTTP, and knows what it has of each.
func ExampleHandler() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "errand-relay-")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	q, err := errand.Open(ctx, filepath.Join(dir, "jobs.db"), nil)
	check(err)
	defer q.Close()

	_, devicePublic := relay.NewKey() // the device keeps the private half
	err = relay.PutDevice(ctx, q, relay.Device{
		Name: "pump-17", Key: devicePublic,
		Rights: relay.Rights{Kinds: []string{"measure", "alarm"}, Queue: "pumps", BytesADay: 10 << 20},
	})
	check(err)

	serverPrivate, _ := relay.NewKey() // the devices have the public half
	h, err := relay.Handler(q, &relay.HandlerOptions{Server: "jobs.example.org", Key: serverPrivate})
	check(err)
	http.Handle("/relay", h)

	check(relay.Revoke(ctx, q, "pump-17"))
	devices, err := relay.Devices(ctx, q)
	check(err)
	for _, d := range devices {
		fmt.Println(d.Name, d.KeyKind, d.Rights.Kinds, d.Counts.Enqueued, "revoked:", !d.RevokedAt.IsZero())
	}
	// Output:
	// pump-17 ed25519-public [measure alarm] 0 revoked: true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
