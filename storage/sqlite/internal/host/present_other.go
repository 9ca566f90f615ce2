//go:build !linux

package host

import "os"

// SetPresent does nothing: this system has no such locks.
func SetPresent(*os.File, bool) error { return nil }

// SomePresent finds nobody.
func SomePresent(*os.File) (bool, error) { return false, nil }
