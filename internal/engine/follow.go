package engine

import (
	"time"

	"github.com/errandq/errand/storage"
)

// follow says what is enqueued with the deaths among the outcomes that are sent.
func (l *loop) follow(all []storage.Finish, at time.Time) {
	for i := range all {
		f := &all[i]
		if f.Outcome == storage.OutcomeUnavailable {
			f = f.Spent
		}
		if f.Outcome == storage.OutcomeDead {
			f.Then = l.cfg.OnDeath(l.outcomes.flight[i].job, f, at)
		}
	}
}
