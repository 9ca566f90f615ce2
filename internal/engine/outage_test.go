package engine_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// counts counts all jobs by state.
func (r *rig) counts() map[storage.State]int64 {
	r.t.Helper()
	all, err := r.app.Counts(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	n := map[storage.State]int64{}
	for _, c := range all {
		n[c.State] += c.N
	}
	return n
}

// Of the 100 hosts of a lane one refuses connections, and the name of one no longer
// exists: the others are served as fast as if these two were well, and the jobs of the
// two end by their policy.
//
//errand:shows a backlog whose other side is away
func TestOutage_TwoHostsOfMany(t *testing.T) {
	const hosts, each, traffic = 100, 20, 200
	drain := func(t *testing.T, broken bool) (took time.Duration) {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Concurrency = 16
			var mu sync.Mutex
			var served int
			var last time.Time
			r.handle("k", func(_ context.Context, job *storage.Leased) error {
				host, err := strconv.Atoi(string(job.Args))
				if err != nil {
					return err
				}
				if broken && host < 2 {
					time.Sleep(5 * time.Millisecond)
					return hostErrors[host]
				}
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if host >= 2 && served < (hosts-2)*each {
					served++
					last = time.Now()
				}
				return nil
			})
			var jobs []storage.NewJob
			for i := range hosts * each {
				jobs = append(jobs, storage.NewJob{Queue: "q", Kind: "k", Args: []byte(strconv.Itoa(i % hosts))})
			}
			if _, err := r.app.Enqueue(t.Context(), r.now(), jobs); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r.start()
			pass(15 * time.Second)
			for range traffic {
				one := storage.NewJob{Queue: "q", Kind: "k", Args: []byte("50")}
				if _, err := r.app.Enqueue(t.Context(), r.now(), []storage.NewJob{one}); err != nil {
					t.Fatal(err)
				}
				pass(500 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			took = last.Sub(began)
			want := map[storage.State]int64{storage.Done: hosts*each + traffic}
			if broken {
				want = map[storage.State]int64{storage.Done: (hosts-2)*each + traffic, storage.Dead: 2 * each}
			}
			if n := r.counts(); fmt.Sprint(n) != fmt.Sprint(want) {
				t.Errorf("in the end there are %v, want %v", n, want)
			}
			page, err := r.app.Jobs(t.Context(), storage.Filter{States: []storage.State{storage.Dead}}, "", 2*each)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				if j.Reason != storage.ReasonExhausted || j.Retry != 3 {
					t.Errorf("a dead job has %+v, reason %s: %s", j.Counters, j.Reason, j.Error)
				}
			}
		})
		return took
	}
	well, broken := drain(t, false), drain(t, true)
	if ratio := well.Seconds() / broken.Seconds(); ratio < 0.95 {
		t.Errorf("the other hosts are served within %v, without the broken ones within %v: %.2f of the rate, want 0.95", broken, well, ratio)
	}
}

var hostErrors = []error{
	&url.Error{Op: "Post", URL: "https://refuses.example/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
	&url.Error{Op: "Post", URL: "https://gone.example/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "gone.example", IsNotFound: true}}},
}
