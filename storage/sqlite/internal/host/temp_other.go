//go:build !unix

package host

import "os"

// TempDir returns the folder for temporary files.
func TempDir() string { return os.TempDir() }

// SameFileSystem reports whether two folders share their free space. That cannot be
// known here.
func SameFileSystem(string, string) bool { return true }
