//go:build !linux

package pgtest

import "errors"

type server struct{ dir string }

func start() (*server, error) { return nil, errors.New("tests start one on Linux alone") }

func (*server) stop() {}
