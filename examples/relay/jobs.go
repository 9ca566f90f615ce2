package main

import (
	"fmt"
	"path/filepath"

	"github.com/errandq/errand"
)

// Reading is a job that is made on a device and done on the server.
type Reading struct {
	N int // in the order in which the device made them, from 1
}

// Kind names the type of job.
func (Reading) Kind() string { return "reading" }

// Trace is a job that the server does not take from devices.
type Trace struct{ N int }

// Kind names the type of job.
func (Trace) Kind() string { return "trace" }

// refused reports whether the job with this number is a Trace: so few that those behind them in a
// group go on in between.
func refused(n int) bool { return n%53 == 0 }

// group returns the group of a job. Some have none.
func group(n int) string {
	if n%8 == 0 {
		return ""
	}
	return fmt.Sprintf("sensor-%d", n%8)
}

// newJob returns a job of a device.
func newJob(n int) errand.NewJob {
	o := &errand.JobOptions{Queue: upQueue, Group: group(n)}
	if refused(n) {
		return errand.NewJob{Args: Trace{n}, Options: o}
	}
	return errand.NewJob{Args: Reading{n}, Options: o}
}

const (
	upQueue    = "up"     // of a device: what goes to the server
	serverName = "server" // under which its devices know it
)

// places are the folders of the server and of the devices.
type places struct{ serverDir, deviceDir string }

func (p places) serverFile(end string) string { return filepath.Join(p.serverDir, "server."+end) }

func (p places) deviceFile(name, end string) string { return filepath.Join(p.deviceDir, name+"."+end) }
