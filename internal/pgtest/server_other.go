//go:build !linux

package pgtest

import "errors"

// Instance is a server in a directory, where its socket is too.
type Instance struct{ dir string }

func programs() (string, error) { return "", errors.New("a server is started on Linux alone") }

// Start fails: there is a way to start a server on Linux alone.
func Start(...string) (*Instance, error) {
	_, err := programs()
	return nil, err
}

// Stop does nothing.
func (*Instance) Stop() {}

// Crash does nothing.
func (*Instance) Crash() {}

// Again fails as Start does.
func (*Instance) Again() error {
	_, err := programs()
	return err
}
