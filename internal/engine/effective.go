package engine

import (
	"encoding/json"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// QueueSettings are the settings of one queue.
type QueueSettings struct {
	// Policy is the queue's own. If nil, that of the Config.
	Policy *policy.Topic
	Rules  policy.Rules // nil: the default ones
	Budget *Budget      // nil: retries are free
	// Throttle is that of the section of the policy in effect, or nil.
	Throttle *Throttle
	// Groups is the throttle of each group. If nil, there is none.
	Groups *GroupThrottle
	// Concurrency is how many of the queue's jobs run at a time. If zero, as
	// many as there are runners.
	Concurrency int
	Gate        Gate // nil: none
	NoKick      bool // a gate that opens makes no job ready
	MaxDeaths   int  // zero: that of the Config
	OpenJitter  time.Duration
}

// queuePolicy returns the policy of a queue. Sections that it lacks are those of
// the Config's policy.
func (c *Config) queuePolicy(queue string) policy.Topic {
	if p := c.settings(queue).Policy; p != nil {
		return *p
	}
	return c.Policy
}

// policyOf returns the delivery policy in effect for a job, section by section:
// the job's own, else that of its kind, else of its queue, else of the Config. A
// queue's policy can disable the first two. The error is about a stored policy
// that does not decode, which counts as none.
func (c *Config) policyOf(job *storage.Leased) (policy.Document, error) {
	own, err := ownPolicy(job)
	h, _ := c.handler(job.Queue, job.Kind)
	return c.queuePolicy(job.Queue).Effective(own.Or(h.Policy), c.Policy.Document), err
}

// ownPolicy returns the policy that is stored with a job.
func ownPolicy(job *storage.Leased) (policy.Document, error) {
	if job.Policy == nil {
		return policy.Document{}, nil
	}
	var own policy.Topic
	err := json.Unmarshal(job.Policy, &own)
	return own.Document, err
}

// effective is policyOf while a failure is handled: it logs a stored policy that
// does not decode, and once for each kind one that [policy.Parse] refuses now.
func (c *Config) effective(job *storage.Leased) policy.Document {
	d, err := c.policyOf(job)
	if err != nil {
		c.Logger.Error("errand: policy of a job does not decode, using that of its kind or queue",
			"job", job.ID.String(), "kind", job.Kind, "error", err)
	} else if job.Policy != nil {
		_, err := policy.Parse(job.Policy, policy.ProfileQueue)
		if err == nil {
			return d
		}
		if _, before := c.refused.LoadOrStore(job.Kind, true); !before {
			c.Logger.Warn("errand: jobs of a kind have a policy of an older build that would be refused now, and keep it",
				"kind", job.Kind, "job", job.ID.String(), "error", err)
		}
	}
	return d
}

// effectiveAfter is effective for an attempt that ended with v.
func (c *Config) effectiveAfter(job *storage.Leased, v *verdict) policy.Document {
	return v.policyOr(c.effective(job))
}

// policyOr returns the policy that the handler has named, and d for what that lacks.
func (v *verdict) policyOr(d policy.Document) policy.Document {
	if v.policy != nil {
		d = v.policy.Or(d)
	}
	return d
}

// rulesOf returns the rules that classify the errors of a job's handler.
func (c *Config) rulesOf(job *storage.Leased) policy.Rules {
	if h, _ := c.handler(job.Queue, job.Kind); h.Rules != nil {
		return h.Rules
	}
	if r := c.settings(job.Queue).Rules; r != nil {
		return r
	}
	return defaultRules
}

var defaultRules = policy.DefaultRules()

// phaseOf returns the phase of an attempt after this many failures. If the policy
// has fewer retries, which a new release can cause, that is the post-backoff phase.
// The store does not keep whether the last failure was a throttled one, so the phase
// is that of the ordinary policy.
func phaseOf(d policy.Document, failures int) policy.Phase {
	if failures == 0 {
		return policy.PhaseFirst
	}
	phase, _, ok := d.For(policy.Retryable).Next(failures - 1)
	if !ok {
		return policy.PhasePostBackoff
	}
	return phase
}
