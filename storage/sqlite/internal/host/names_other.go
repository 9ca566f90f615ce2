//go:build !linux

package host

import "os"

// mountedAlone returns false: only Linux is asked.
func mountedAlone(string) bool { return false }

// Writers returns 0: only Linux is asked.
func Writers(os.FileInfo) int { return 0 }
