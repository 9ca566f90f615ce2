package storage

import "context"

// Compacter is implemented by a Store that can give space that holds nothing back to
// the file system.
type Compacter interface {
	// Compact returns free space to the file system, and says how many bytes. It changes nothing that other
	// methods return. Calls that write wait meanwhile. It returns [ErrFull] if there is not
	// the room that it needs itself. If ctx ends, nothing is given back. It returns
	// [ErrClosed] as all calls do.
	Compact(ctx context.Context) (freed int64, err error)
}
