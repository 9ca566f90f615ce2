package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/relay"
)

const (
	publicKey  = "ed25519-public:"
	privateKey = "ed25519-private:"
	sharedKey  = "hmac-sha256:"
)

// keyOf returns the line of a key that a flag names: itself if it is public, or that in a file, or
// that of standard input if the name is -.
func (t *tool) keyOf(flag, value string) (string, error) {
	switch {
	case strings.HasPrefix(value, publicKey):
		return value, nil
	case strings.HasPrefix(value, privateKey), strings.HasPrefix(value, sharedKey):
		return "", fmt.Errorf("--%s: must be the name of a file: this key is secret, and others can see the arguments of a command", flag)
	}
	data, err := readWhole(t.in, value)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// publicOf returns the line of a key that verifies, as keyOf does. It refuses a private half.
func (t *tool) publicOf(flag, value string) (string, error) {
	line, err := t.keyOf(flag, value)
	if err == nil && strings.HasPrefix(line, privateKey) {
		err = fmt.Errorf("--%s: %s has a private key, which stays where it signs: give its public half, which errand devices new-key has printed", flag, value)
	}
	return line, err
}

// writeKey writes the line of a key to a new file that only its owner may read.
func writeKey(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func deviceNewKeyCommand(t *tool) *cobra.Command {
	var shared bool
	cmd := &cobra.Command{
		Use:   "new-key FILE",
		Short: "Make the key of a device or of a server",
		Long: `Make a key of Ed25519, for a device or for a server. Its private half, which signs, goes
to FILE, which must not be there yet and which only you may read. Its public half, which
verifies, is printed: it is for the other side.

With --shared it makes a key of HMAC-SHA256 instead, for devices that are too small for
Ed25519. The device and the server both need this FILE, and nothing is printed of it.`,
		Example: "  errand devices new-key pump-18.key\n  errand devices new-key --shared meter-4.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, public := relay.NewKey()
			if shared {
				key, public = relay.NewSharedKey(), ""
			}
			if err := writeKey(args[0], key); err != nil {
				return err
			}
			return t.show(struct {
				File   string `json:"file"`
				Public string `json:"public,omitempty"`
			}{args[0], public}, func(p *printer) {
				if shared {
					p.printf("%s: made, for both sides\n", safe(args[0]))
					return
				}
				p.printf("%s\n", public)
			})
		},
	}
	cmd.Flags().BoolVar(&shared, "shared", false, "make a key of HMAC-SHA256, which both sides keep")
	return cmd
}
