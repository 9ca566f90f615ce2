package errand

import (
	"context"
	"fmt"

	"github.com/errandq/errand/storage"
)

// Compact writes the file anew without the space in it that holds nothing, and returns by
// how many bytes it has become smaller, its pages that are in the log only counted as if they
// were in the file. The file itself becomes smaller at the next
// checkpoint that reaches the end of the log: mostly at once, later if somebody reads.
//
// All calls that write wait until Compact is done, in all processes, and for longer than
// SQLiteOptions.BusyTimeout they fail: that takes about 10 s for each GB that is in use.
// So call it when little is going on. It needs room for twice what is in use, in the
// directory for temporary files and beside the file, and returns [ErrFull] if there is not
// as much. If ctx ends, or the process dies, the file stays as it was. It returns
// [ErrUnsupportedDB] if the store cannot become smaller. See docs/limits.md.
func (q *Queue) Compact(ctx context.Context) (freed int64, err error) {
	s, ok := q.store.(storage.Compacter)
	if !ok {
		return 0, fmt.Errorf("%w: store %T cannot become smaller", ErrUnsupportedDB, q.store)
	}
	return s.Compact(ctx)
}
