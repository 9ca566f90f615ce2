//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly && !windows

package sqlite

// bootID cannot be told here: every process that died counts as crashed.
func bootID() string { return "" }
