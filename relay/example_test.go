package relay_test

import (
	"context"
	"errors"
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

	for _, end := range []string{"hub", "pump-17"} {
		check(makeKeys(filepath.Join(dir, end)))
	}

	devicePublic, err := os.ReadFile(filepath.Join(dir, "pump-17.pub")) // copied from the device
	check(err)
	err = relay.PutDevice(ctx, q, relay.Device{
		Name: "pump-17", Key: string(devicePublic),
		Rights: relay.Rights{Kinds: []string{"measure", "alarm"}, Queue: "pumps", BytesADay: 10 << 20},
	})
	check(err)

	serverPrivate, err := os.ReadFile(filepath.Join(dir, "hub.key"))
	check(err)
	h, err := relay.Handler(q, &relay.HandlerOptions{Server: "jobs.example.org", Key: string(serverPrivate)})
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

// makeKeys makes the keys of one end, once, as errand devices new-key does. The other end gets name.pub.
func makeKeys(name string) error {
	private, public := relay.NewKey()
	return errors.Join(os.WriteFile(name+".key", []byte(private), 0o600), os.WriteFile(name+".pub", []byte(public), 0o600))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
