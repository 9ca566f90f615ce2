package dashboard

import (
	"time"

	"github.com/errandq/errand"
)

// quantile returns below what time a part of what a histogram has counted stayed, about: within a
// bucket times are taken to be spread evenly, as histogram_quantile of Prometheus does. Of the first
// and of the last only the bound is known. It must have counted something.
func quantile(h *errand.Histogram, part float64) string {
	text := func(seconds float64) string { return took(time.Duration(seconds * float64(time.Second))) }
	want := part * float64(h.Count)
	var from errand.Bucket
	for i, b := range h.Buckets {
		switch {
		case float64(b.N) < want:
		case i == 0:
			return "< " + text(b.UpTo)
		default:
			return text(from.UpTo + (want-float64(from.N))/float64(b.N-from.N)*(b.UpTo-from.UpTo))
		}
		from = b
	}
	return "> " + text(from.UpTo)
}

// part is quantile of what may have nothing.
func part(h *errand.Histogram, of float64) string {
	if h.Count == 0 {
		return "–"
	}
	return quantile(h, of)
}

// quantiles returns the median and the time below which 95 of 100 stayed, as text.
func quantiles(h *errand.Histogram) string {
	if h.Count == 0 {
		return "–"
	}
	return quantile(h, 0.5) + " / " + quantile(h, 0.95)
}

// plus adds the buckets of another histogram, which has the same bounds or none.
func plus(h, o errand.Histogram) errand.Histogram {
	if len(o.Buckets) == 0 {
		return h
	}
	out := errand.Histogram{Buckets: append([]errand.Bucket(nil), o.Buckets...), Count: h.Count + o.Count, Sum: h.Sum + o.Sum}
	for i := range h.Buckets {
		out.Buckets[i].N += h.Buckets[i].N
	}
	return out
}
