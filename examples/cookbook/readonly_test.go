package cookbook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
)

// A monitor looks at the queue of another program. It needs the right to read the file
// alone, and leaves no trace of itself.
func Example_readOnly() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "jobs.db")

	_, err := errand.Open(ctx, path, &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}})
	fmt.Println("no file is made:", errors.Is(err, os.ErrNotExist))

	program := must(errand.Open(ctx, path, nil))
	defer program.Close()
	must(program.Enqueue(ctx, SendEmail{To: "ada@example.org"}, nil))

	q := must(errand.Open(ctx, path, &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}}))
	defer q.Close()
	for _, c := range must(q.Counts(ctx)) {
		fmt.Println(c.Queue, c.Kind, c.State, c.N)
	}
	err = q.Pause(ctx, "default")
	fmt.Println("it cannot write:", errors.Is(err, errand.ErrReadOnly))
	// Output:
	// no file is made: true
	// default send_email ready 1
	// it cannot write: true
}

// A tool changes the queue of another program, and never makes one of a file that is
// missing or not a queue.
func Example_existing() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "errand-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "jobs.db")

	tool := &errand.Options{SQLite: errand.SQLiteOptions{Existing: true}}
	_, err := errand.Open(ctx, path, tool)
	fmt.Println("no file is made:", errors.Is(err, os.ErrNotExist))

	program := must(errand.Open(ctx, path, nil))
	defer program.Close()
	q := must(errand.Open(ctx, path, tool))
	defer q.Close()
	check(q.Pause(ctx, "default"))
	// Output:
	// no file is made: true
}
