//go:build unix

package relay

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// BenchmarkBoth passes 10,000 jobs from a device to a server in one process, and reports the CPU of a
// job, from when it is leased until it is in the server's queue and done here.
func BenchmarkBoth(b *testing.B) {
	for name, group := range map[string]func(int) string{"plain": none, "groups": func(i int) string { return fmt.Sprint("g", i%100) }} {
		b.Run(name, func(b *testing.B) {
			const jobs = 10_000
			var cpu time.Duration
			for range b.N {
				h, private, public := newHub(b)
				d := h.device(b, private, public)
				d.add(b, jobs, group)
				began := cpuTime(b)
				stop := d.run(b)
				until(b, "all are done", func() bool { return d.count(b, errand.Done) == jobs })
				cpu += cpuTime(b) - began
				stop()
			}
			b.ReportMetric(float64(cpu.Microseconds())/float64(jobs*b.N), "us-cpu/job")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
