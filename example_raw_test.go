package errand_test

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/errandq/errand"
)

// An importer takes kinds and args from lines of text; a proxy hands them on. Neither
// has a Go type for them.
func ExampleHandleRaw() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()

	lines := "thumbnail {\"file\": \"a.jpg\"}\nthumbnail {\"file\": \"b.jpg\"}\n"
	for s := bufio.NewScanner(strings.NewReader(lines)); s.Scan(); {
		kind, args, _ := strings.Cut(s.Text(), " ")
		must(q.Enqueue(ctx, errand.RawArgs{OfKind: kind, JSON: []byte(args)}, nil))
	}

	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.HandleRaw(w, "thumbnail", func(_ context.Context, job *errand.Job[errand.RawArgs]) error {
		fmt.Printf("%s %s\n", job.Kind, job.Args.JSON)
		if strings.Contains(string(job.Args.JSON), "b.jpg") {
			stop() // all this example wants
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// thumbnail {"file":"a.jpg"}
	// thumbnail {"file":"b.jpg"}
}
