package engine

import (
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Line is what is particular to one queue.
type Line struct {
	// Policy is complete: what it lacks is absent.
	Policy policy.Topic
	Rules  policy.Rules // nil: the default ones
	Budget *Budget      // nil: retries are free
	// Throttle is that of the section of Policy, or nil.
	Throttle *Throttle
}

// line gives what holds for a queue, of which nothing particular may be known.
func (c *Config) line(queue string) Line {
	if l, ok := c.Lines[queue]; ok {
		return l
	}
	return Line{Policy: c.Policy}
}

// policyOf gives the document in effect for a job, section by section: its
// own, unless the queue's disables it, else that of its kind, likewise, else
// of its queue, else the default. The error is about a document of its own that
// does not decode, which counts as none.
func (c *Config) policyOf(job *storage.Leased) (policy.Document, error) {
	var own policy.Topic
	var err error
	if job.Policy != nil {
		own, err = policy.Parse(job.Policy, policy.ProfileQueue)
	}
	of := own.Or(c.Handlers[job.Kind].Policy)
	return c.line(job.Queue).Policy.Effective(of, policy.Document{}), err
}

// effective is policyOf for when a failure is being handled: a document that
// does not decode is logged and passed over.
func (c *Config) effective(job *storage.Leased) policy.Document {
	d, err := c.policyOf(job)
	if err != nil {
		c.Logger.Error("errand: policy of a job does not decode, using that of its kind or queue",
			"job", job.ID.String(), "kind", job.Kind, "error", err)
	}
	return d
}

// knowsRetry tells whether effective gives the retry section that every worker
// would go by: that of a kind is known only to those who handle it.
func (c *Config) knowsRetry(job *storage.Leased) bool {
	if _, ok := c.Handlers[job.Kind]; ok || c.line(job.Queue).Policy.DisableSubscriptionOverrides {
		return true
	}
	own, err := policy.Parse(job.Policy, policy.ProfileQueue)
	return job.Policy != nil && err == nil && own.Retry != nil
}

// rulesOf gives the rules that classify the errors of a job's handler.
func (c *Config) rulesOf(job *storage.Leased) policy.Rules {
	if r := c.Handlers[job.Kind].Rules; r != nil {
		return r
	}
	if r := c.line(job.Queue).Rules; r != nil {
		return r
	}
	return defaultRules
}

var defaultRules = policy.DefaultRules()

// phaseOf gives the phase of an attempt before which there were this many
// failures. A policy may have been made shorter meanwhile: what is beyond it
// counts as the phase that has no end of its own. Whether the failure before
// was one by throttling is not known any more, so that the phase is always one
// of the usual policy.
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
