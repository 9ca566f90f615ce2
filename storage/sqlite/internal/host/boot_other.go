//go:build !linux && !darwin && !windows

package host

// bootID returns "": the system has no name of its boot, and the time of the boot
// moves with the clock. So every process that died counts as crashed.
func bootID() string { return "" }
