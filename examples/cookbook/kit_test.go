package cookbook_test

import (
	"github.com/errandq/errand/internal/kit"
)

// SendEmail is the kind of most recipes.
type SendEmail struct{ To, Subject string }

// Kind names the type of job.
func (SendEmail) Kind() string { return "send_email" }

// Reading is a value of a sensor.
type Reading struct {
	Sensor string
	Value  float64
}

// Kind names the type of job.
func (Reading) Kind() string { return "reading" }

// Fetch is a kind without a handler.
type Fetch struct{ URL string }

// Kind names the type of job.
func (Fetch) Kind() string { return "fetch" }

// Upload sends the latest text of a document.
type Upload struct{ Document int }

// Kind names the type of job.
func (Upload) Kind() string { return "upload" }

// Last is a job that starts after all others.
type Last struct{}

// Kind names the type of job.
func (Last) Kind() string { return "last" }

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
