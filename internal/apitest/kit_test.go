package apitest

import (
	"os"
	"testing"

	"github.com/errandq/errand/internal/kit"
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

// tempQueue opens a queue in a folder of its own, and returns what removes it.
var tempQueue = kit.TempQueue

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
