package errand_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
)

// A backup is taken while the queue is in use, and opened as any queue.
func ExampleQueue_Backup() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	must(q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))

	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	backup := filepath.Join(dir, "backup.db")
	check(q.Backup(ctx, backup))

	restored := must(errand.Open(ctx, backup, nil))
	fmt.Println(restored.Counts(ctx))
	check(restored.Close())
	// Output: [{default send_email ready 1}] <nil>
}
