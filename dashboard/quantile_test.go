package dashboard

import (
	"testing"

	"github.com/errandq/errand"
)

// Times are read off the buckets: evenly within one, and of the last one only that they were longer.
func TestQuantiles(t *testing.T) {
	histogram := func(n ...int64) *errand.Histogram {
		h := &errand.Histogram{Buckets: []errand.Bucket{{UpTo: 0.1}, {UpTo: 1}, {UpTo: 60}}}
		for i := range n {
			if h.Count += n[i]; i < len(h.Buckets) {
				h.Buckets[i].N = h.Count
			}
		}
		return h
	}
	for name, c := range map[string]struct {
		h    *errand.Histogram
		want string
	}{
		"nothing":         {histogram(0, 0, 0, 0), "–"},
		"all in one":      {histogram(100, 0, 0, 0), "< 100 ms / < 100 ms"},
		"in the middle":   {histogram(0, 10, 0, 0), "550 ms / 955 ms"},
		"two buckets":     {histogram(90, 0, 10, 0), "< 100 ms / 30 s"},
		"longer than all": {histogram(5, 0, 0, 5), "< 100 ms / > 1 min"},
		"one":             {histogram(0, 0, 0, 1), "> 1 min / > 1 min"},
	} {
		if got := quantiles(c.h); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	sum := plus(errand.Histogram{}, *histogram(1, 2, 3, 4))
	if sum = plus(sum, *histogram(10, 0, 0, 0)); sum.Count != 20 || sum.Buckets[0].N != 11 || sum.Buckets[2].N != 16 {
		t.Errorf("two together: %+v", sum)
	}
}
