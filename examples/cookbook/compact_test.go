package cookbook_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/errandq/errand"
)

// Jobs that are gone leave free space in the file.
func Example_queueCompact() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Retention: -1})
	defer remove()
	id := must(q.Enqueue(ctx, SendEmail{To: strings.Repeat("ada", 10_000)}, nil))
	must(q.Cancel(ctx, id.ID))

	freed := must(q.Compact(ctx))
	fmt.Println(freed > 0)
	fmt.Println(q.Compact(ctx)) // there is no more
	// Output:
	// true
	// 0 <nil>
}
