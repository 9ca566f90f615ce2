//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package sqlite

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// bootID names the boot of the system: an instance of another boot did not
// crash, its machine went down. Empty if it cannot be told.
func bootID() string {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return strconv.FormatInt(int64(tv.Sec), 10)
}
