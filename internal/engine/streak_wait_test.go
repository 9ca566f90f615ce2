package engine_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// An outage that is over is noticed by the next probe. These are the times until then in
// docs/outages.md, with the least and the most of what is added at random.
func TestStreak_NextProbe(t *testing.T) {
	outages := []time.Duration{5 * time.Second, time.Minute, time.Hour}
	for _, test := range []struct {
		name string
		err  error
		jobs int
		most []time.Duration
	}{
		{"with a network", errUnreached, 100, []time.Duration{1600 * time.Millisecond, 7 * time.Second, 331 * time.Second}},
		{"one job", errUnreached, 1, []time.Duration{4 * time.Second, 22 * time.Second, 331 * time.Second}},
		{"no network", &net.DNSError{Err: "timeout", IsTimeout: true, Name: "example.com"}, 100,
			[]time.Duration{6 * time.Second, 72 * time.Second, 331 * time.Second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, random := range []float64{0, 0.25, 0.5, 0.75, 0.999} {
				withSide(t, test.err, func(t *testing.T, r *rig, s *side) {
					r.cfg.Rand = func() float64 { return random }
					from, at := time.Now(), []time.Duration{}
					r.handle("k", func(ctx context.Context, job *storage.Leased) error {
						s.mu.Lock()
						at = append(at, time.Since(from))
						s.mu.Unlock()
						return s.run(ctx, job)
					})
					r.enqueue("k", test.jobs)
					r.start()
					pass(70 * time.Minute)
					s.mu.Lock()
					defer s.mu.Unlock()
					for i, outage := range outages {
						j := 0
						for j < len(at) && at[j] <= outage {
							j++
						}
						if j == len(at) || at[j]-outage > test.most[i] {
							t.Errorf("after %v there is no probe within %v: the last was at %v", outage, test.most[i], at[max(j-1, 0)])
						}
					}
				})
			}
		})
	}
}
