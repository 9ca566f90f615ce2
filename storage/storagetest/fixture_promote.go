package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// promoteOthers does what x has left to Promote, if s is a [storage.Promoter], and adds it to
// the answer to x.
func (f *fixture) promoteOthers(s storage.Store, x storage.Exchange, res *storage.ExchangeResult) {
	f.Helper()
	if p, ok := s.(storage.Promoter); ok {
		more := f.promote(p, storage.Promotion{Retention: x.Retention, Doubtful: x.Doubtful, Follow: x.Follow})
		res.Expired, res.NextDue = append(res.Expired, more.Expired...), earlier(res.NextDue, more.Next)
	}
}

// promote calls Promote until there is nothing more to do at the time.
func (f *fixture) promote(s storage.Promoter, p storage.Promotion) storage.Promoted {
	f.Helper()
	return promote(f, f.now, s, p)
}

func promote(t interface {
	Helper()
	Fatalf(format string, args ...any)
	must(err error)
}, now time.Time, s storage.Promoter, p storage.Promotion) (all storage.Promoted) {
	t.Helper()
	for range 10_000 {
		step, err := s.Promote(context.Background(), now, p)
		t.must(err)
		all.Expired, all.Next = append(all.Expired, step.Expired...), step.Next
		if step.Next.IsZero() || step.Next.After(now) {
			return all
		}
	}
	t.Fatalf("Promote asks to be called again and again at %v", now)
	return all
}
