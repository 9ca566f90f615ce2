package errand

import (
	"context"
	"fmt"

	"github.com/errandq/errand/storage"
)

// Compact writes the file anew without its unused space, and returns by how many bytes it
// has become smaller. Pages that are only in the log count as if they were in the file.
// The file itself becomes smaller at the next checkpoint that reaches the end of the log:
// mostly at once, later if somebody reads.
//
// In all processes, calls that write wait until Compact is done, and fail after
// SQLiteOptions.BusyTimeout. Compact takes about 10 s for each GB that is in use: call it
// when little is going on. It needs room for what is in use twice: in the directory for
// temporary files and beside the file. It returns [ErrFull] if there is not as much. If
// ctx ends, or the process dies, the file stays as it was. It returns [ErrUnsupportedDB]
// if the store cannot become smaller. See docs/limits.md.
func (q *Queue) Compact(ctx context.Context) (freed int64, err error) {
	s, ok := q.store.(storage.Compacter)
	if !ok {
		return 0, fmt.Errorf("%w: store %T cannot become smaller", ErrUnsupportedDB, q.store)
	}
	return s.Compact(ctx)
}
