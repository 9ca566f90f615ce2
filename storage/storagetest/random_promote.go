package storagetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// promote compares what both promote.
func (h *history) promote(t *rapid.T, p *pair) {
	how := storage.Promotion{Retention: anyRetention(t), Doubtful: rapid.IntRange(0, 3).Draw(t, "doubtful") == 0}
	h.promoteBoth(p, how)
}

func (h *history) promoteBoth(p *pair, how storage.Promotion) {
	h.Helper()
	real := promote(h, h.now, p.real.(storage.Promoter), how)
	model := promote(h, h.now, narrow{p.model.(*instance)}, how)
	h.both("next Promote", real.Next.UTC(), model.Next.UTC())
	h.sameExpired(real.Expired, model.Expired)
	h.sameEvicted(p)
}

// promoteOthers promotes if x may leave jobs of other lanes as they are, but need not.
func (h *history) promoteOthers(t *rapid.T, p *pair, x *storage.Exchange) {
	in := p.model.(*instance)
	now := floor(h.now)
	left := func(j *job) bool {
		late, _ := j.over(now)
		changes := late || j.windows.open && !x.Doubtful || j.State == storage.Scheduled && !j.DueAt.After(now)
		return changes && !slices.ContainsFunc(x.Wants, j.in)
	}
	if x.Wanted()+x.Urgent > 0 && len(in.m.where(left, byKey)) > 0 {
		h.promoteBoth(p, storage.Promotion{Retention: anyRetention(t), Doubtful: x.Doubtful})
	}
}

// sameNextDue compares NextDue, in which a [storage.Promoter] may leave lanes out.
func (h *history) sameNextDue(p *pair, real, model storage.ExchangeResult, wants []storage.Want) {
	h.Helper()
	got, want := real.NextDue.UTC(), model.NextDue.UTC()
	if _, ok := p.real.(storage.Promoter); !ok || got.Equal(want) {
		h.both("NextDue", got, want)
		return
	}
	in := p.model.(*instance)
	own := in.m.nextChange(func(j *job) bool { return slices.ContainsFunc(wants, j.in) })
	other := in.m.nextChange(func(j *job) bool { return !slices.ContainsFunc(wants, j.in) })
	late := !own.IsZero() && (got.IsZero() || got.After(own))
	if late || !got.IsZero() && got.Before(want) || !other.Equal(want) {
		h.Fatalf("NextDue is %v, want %v, or later without other lanes", got, want)
	}
}
