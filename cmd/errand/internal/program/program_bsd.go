//go:build unix && !linux

package program

import "syscall"

// dieWithUs does nothing: the guard kills the program.
func dieWithUs(*syscall.SysProcAttr) {}
