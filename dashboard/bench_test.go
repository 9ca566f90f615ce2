package dashboard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
)

// What BenchmarkPages looks at, as far as it is not the default.
var (
	benchFile = flag.String("dashboard.file", "", "a queue to look at, which is changed; if empty, one that is made")
	benchRows = flag.Int("dashboard.rows", 20_000, "how many jobs the queue that is made has")
)

// kindOf is the kind of page that an address is of.
func kindOf(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	switch {
	case u.Path == "/":
		return "front"
	case strings.HasPrefix(u.Path, "/job/"):
		return "job"
	}
	return strings.TrimPrefix(u.Path, "/")
}

// benchQueue opens the queue that benchmarks look at.
func benchQueue(b *testing.B) *errand.Queue {
	b.Helper()
	file := *benchFile
	if file == "" {
		file = filepath.Join(b.TempDir(), "jobs.db")
	}
	q, err := errand.Open(b.Context(), file, &errand.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = q.Close() })
	if *benchFile == "" {
		stock(b, q, *benchRows)
	}
	return q
}

// reportP95 reports the 95th percentile of times.
func reportP95(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkPages asks for one page of each kind that can be reached from the front, and reports the
// 95th percentile of how long it takes.
func BenchmarkPages(b *testing.B) {
	q := benchQueue(b)
	h := dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Admin), Logger: quiet})
	for _, at := range reach(b, h) {
		b.Run("page="+kindOf(at), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				begun := time.Now()
				if status, text := get(h, at); status != http.StatusOK {
					b.Fatalf("%s: %d %s", at, status, text)
				}
				all = append(all, time.Since(begun))
			}
			reportP95(b, all)
		})
	}
}

// reach returns an address of each kind of page.
func reach(b *testing.B, h http.Handler) (all []string) {
	b.Helper()
	seen, kinds, todo := map[string]bool{}, map[string]int{}, []string{"/"}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if seen[at] {
			continue
		}
		seen[at] = true
		kind := kindOf(at)
		if kinds[kind]++; kinds[kind] == 1 {
			all = append(all, at)
		} else if kinds[kind] > 5 {
			continue
		}
		_, text := get(h, at)
		base, err := url.Parse(at)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if to, err := base.Parse(html.UnescapeString(m[1])); err == nil && to.Scheme == "" && to.Host == "" && path.Ext(to.Path) == "" {
				to.Fragment = ""
				todo = append(todo, to.String())
			}
		}
	}
	return all
}

// stock fills a queue: an eighth of the jobs is dead, another one done, a quarter ready and the rest
// scheduled, some of them in groups.
func stock(b *testing.B, q *errand.Queue, n int) {
	b.Helper()
	add := func(n int, job func(i int) errand.NewJob) {
		for from := 0; from < n; from += 1000 {
			jobs := make([]errand.NewJob, min(1000, n-from))
			for i := range jobs {
				jobs[i] = job(from + i)
			}
			if _, err := q.EnqueueMany(b.Context(), jobs); err != nil {
				b.Fatal(err)
			}
		}
	}
	ended := n / 4
	add(ended, func(i int) errand.NewJob {
		return errand.NewJob{Args: letter{To: fmt.Sprint(i)}, Options: &errand.JobOptions{Queue: fmt.Sprintf("ended%d", i%20)}}
	})
	ctx, stop := context.WithCancel(b.Context())
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"*"}, Logger: quiet})
	done := make(chan struct{}, ended)
	errand.Handle(w, func(_ context.Context, j *errand.Job[letter]) error {
		done <- struct{}{}
		var i int
		if _, err := fmt.Sscan(j.Args.To, &i); err != nil {
			return err
		}
		if i/20%2 == 0 {
			return nil
		}
		return errand.Permanent(fmt.Errorf("of cause %d: %w", i%10, errors.ErrUnsupported))
	}, errand.HandlerOptions{Policy: &policy.Policy{}})
	go func() {
		for range ended {
			<-done
		}
		stop()
	}()
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
	add(n/4, func(i int) errand.NewJob {
		return errand.NewJob{Args: letter{To: "nobody"}, Options: &errand.JobOptions{Queue: fmt.Sprintf("ready%d", i%800)}}
	})
	add(n-ended-n/4, func(i int) errand.NewJob {
		o := &errand.JobOptions{Queue: fmt.Sprintf("later%d", i%100), Delay: time.Hour + time.Duration(i)*time.Millisecond, Tags: []string{"odd"}[:i%2]}
		if i%10 == 0 {
			o.Queue, o.Group = "grouped", fmt.Sprint(i%1000)
		}
		return errand.NewJob{Args: letter{To: "later"}, Options: o}
	})
}
