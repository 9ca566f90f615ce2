//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func privately(f func() error) error { return f() }

// wsaRefused is WSAECONNREFUSED.
const wsaRefused = syscall.Errno(10061)

func isRefused(err error) bool { return errors.Is(err, wsaRefused) }

func staysInBackground() {}
