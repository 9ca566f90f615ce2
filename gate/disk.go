package gate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DiskFree returns a gate that is open while the file system of a path has at least
// minBytes free for users other than root. The path must exist when it is asked for;
// otherwise the gate is closed. The defaults of the options are such that free space
// is noticed within 12 s.
//
// DiskFree refuses an empty path, minBytes below 1, and options out of the bounds that
// [NewCheck] names, with an [errand.FieldError]. It refuses any path on systems whose
// free space cannot be read: all but Linux, macOS, FreeBSD and Windows.
func DiskFree(path string, minBytes int64, o *CheckOptions) (*Check, error) {
	var f faults
	switch _, err := freeBytes("."); {
	case path == "":
		f.field("path", path, "must not be empty")
	case errors.Is(err, errors.ErrUnsupported):
		f.field("path", path, "must be on a system whose free space can be read")
	}
	if minBytes < 1 {
		f.field("min_bytes", minBytes, "must be at least 1")
	}
	return f.check("the file system of "+path, func(context.Context) error {
		switch free, err := freeBytes(path); {
		case err != nil:
			return fmt.Errorf("free space of %s is not known: %s", path, plain(err))
		case free < minBytes:
			return fmt.Errorf("%d bytes are free in %s, less than %d", free, path, minBytes)
		}
		return nil
	}, o.withDefaults(10*time.Second, 10*time.Second))
}
