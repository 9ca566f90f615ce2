//go:build linux || darwin || freebsd

package gate

import (
	"math/bits"

	"golang.org/x/sys/unix"
)

// freeBytes returns how many bytes users other than root may still write to the file
// system of a path. It may take long on a file system of another machine.
func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	free := int64(st.Bavail)
	if free < 0 {
		return 0, nil // within what is reserved for root, on FreeBSD
	}
	hi, lo := bits.Mul64(uint64(free), uint64(st.Bsize))
	if hi > 0 || lo > 1<<63-1 {
		return 1<<63 - 1, nil
	}
	return int64(lo), nil
}
