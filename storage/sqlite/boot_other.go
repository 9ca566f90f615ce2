//go:build !linux && !darwin && !windows

package sqlite

// bootID cannot be told here (the time of the boot moves with the clock): every
// process that died counts as crashed.
func bootID() string { return "" }
