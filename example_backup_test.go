package errand_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
)

// A backup is taken while the queue is in use, and opened as any queue.
func ExampleQueue_Backup() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	q, err := errand.Open(ctx, filepath.Join(dir, "jobs.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil); err != nil {
		log.Fatal(err)
	}
	backup := filepath.Join(dir, "backup.db")
	if err := q.Backup(ctx, backup); err != nil {
		log.Fatal(err)
	}

	restored, err := errand.Open(ctx, backup, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	fmt.Println(restored.Counts(ctx))
	// Output: [{default send_email ready 1}] <nil>
}
