package apitest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
)

// root is the path of the repository.
const root = "../.."

// SendEmail is a kind that has no options of its own.
type SendEmail struct{ To, Subject string }

// Kind names the type of job.
func (SendEmail) Kind() string { return "send_email" }

// Upload is a kind that is mostly unique.
type Upload struct{ Document int }

// Kind names the type of job.
func (Upload) Kind() string { return "upload" }

// tempQueue opens a queue outside of tests, and returns what removes it.
func tempQueue(o *errand.Options) (*errand.Queue, func()) {
	var options errand.Options
	if o != nil {
		options = *o
	}
	options.Logger = slog.New(slog.DiscardHandler)
	dir := must(os.MkdirTemp("", "errand-"))
	q := must(errand.Open(context.Background(), filepath.Join(dir, "jobs.db"), &options))
	return q, func() {
		check(q.Close())
		check(os.RemoveAll(dir))
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
