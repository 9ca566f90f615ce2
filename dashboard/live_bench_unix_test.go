//go:build unix

package dashboard_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// BenchmarkLive has a hundred pages open for a second, half of them the overview and half of them
// pages of jobs or the list of jobs, while a job is committed. It reports the part of a core that
// this takes, in percent.
func BenchmarkLive(b *testing.B) {
	q := benchQueue(b)
	page, err := q.Jobs(b.Context(), errand.JobFilter{States: []errand.State{errand.Ready}}, &errand.ListOptions{Limit: 50})
	if err != nil {
		b.Fatal(err)
	}
	for name, at := range map[string]func(i int) string{
		"jobs": func(i int) string { return "job/" + page.Jobs[i].ID.String() },
		"list": func(int) string { return "jobs" },
	} {
		b.Run("half="+name, func(b *testing.B) {
			h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Admin), Logger: quiet})
			tags := make([]string, 100)
			second := func(round int) { // each page asks every other second
				for i := round % 2; i < len(tags); i += 2 {
					to := ""
					if i >= len(tags)/2 {
						to = at(i - len(tags)/2)
					}
					if w := part(h, to, tags[i]); w.Code == 200 {
						tags[i] = w.Header().Get("ETag")
					}
					time.Sleep(time.Second / 50)
				}
				if _, err := q.Enqueue(b.Context(), letter{To: "nobody"}, nil); err != nil {
					b.Fatal(err)
				}
			}
			for round := range 20 {
				second(round)
			}
			begun, wall, n := cpu(b), time.Now(), 0
			for b.Loop() {
				second(n)
				n++
			}
			b.ReportMetric((cpu(b)-begun).Seconds()/time.Since(wall).Seconds()*100, "%core")
		})
	}
}

// cpu returns how much time this process has computed.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
