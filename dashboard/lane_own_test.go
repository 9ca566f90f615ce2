package dashboard_test

import (
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/policy"
)

// The page of a queue and kind says that jobs have policies of their own, and shows one.
func TestLane_own(t *testing.T) {
	q := open(t)
	shows := func(kind string) string {
		t.Helper()
		_, page := get(as(q, dashboard.Viewer), "/lane?queue=default&kind="+kind)
		return plain(page)
	}
	add(t, q, mail{"a"}, nil)
	has(t, "without", shows("mail"), false, "looked at", "Retries of job")
	own := errand.JobOptions{Delay: time.Hour, Policy: policy.Policy{Retries: 2, MinDelayRetries: 2, MinDelay: 2 * time.Second, MaxDelay: 2 * time.Second}}
	add(t, q, payment{}, &own)
	has(t, "no worker", shows("payment"), true, "The job that was looked at has a policy of its own", "2 retries in 2 s to 4 s", "The policy in effect for jobs without one of their own is not known")
	add(t, q, payment{}, &errand.JobOptions{Delay: time.Hour})
	defer work(t, q)()
	has(t, "with a worker", shows("payment"), true, "1 of ", "jobs that were looked at have a policy of their own", "Of jobs without a policy of their own: Retries 27 retries")
}
