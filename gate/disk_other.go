//go:build !linux && !darwin && !freebsd && !windows

package gate

import "errors"

// freeBytes returns errors.ErrUnsupported: the system is not asked.
func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
