//go:build !linux

package pgtest

import "errors"

// Instance is a server in a directory, where its socket is too.
type Instance struct{ dir string }

// Start fails: there is a way to start a server on Linux alone.
func Start(...string) (*Instance, error) { return nil, errors.New("a server is started on Linux alone") }

// Stop does nothing.
func (*Instance) Stop() {}
