//go:build unix

package host

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TempDir returns the folder in which SQLite makes temporary files: the first of these
// in which this process may; see https://sqlite.org/tempfiles.html.
func TempDir() string {
	for _, dir := range []string{os.Getenv("SQLITE_TMPDIR"), os.Getenv("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp"} {
		info, err := os.Stat(dir)
		if dir != "" && err == nil && info.IsDir() && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	return "."
}

// SameFileSystem reports whether two folders share their free space. If that cannot be
// known, they do.
func SameFileSystem(a, b string) bool {
	var x, y syscall.Stat_t
	return syscall.Stat(a, &x) != nil || syscall.Stat(b, &y) != nil || x.Dev == y.Dev
}
