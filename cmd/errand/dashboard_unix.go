//go:build unix

package main

import (
	"errors"
	"os/signal"
	"syscall"
)

// privately calls f while files that are made are for this user alone.
func privately(f func() error) error {
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	return f()
}

// isRefused reports whether nobody listens.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// staysInBackground has the process go on if it reads from a terminal in the background: that
// stops a process by default.
func staysInBackground() { signal.Ignore(syscall.SIGTTIN) }
