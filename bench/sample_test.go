package main

import (
	"math"
	"testing"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred, 0, 1},
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %d values: got %v, want %v", c.q, len(c.values), got, c.want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	values := []float64{5, 1, 3, 2, 100}
	s := summarize(values)
	if s != (summary{median: 3, least: 1, most: 100, n: 5}) {
		t.Errorf("got %+v", s)
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
	if s := summarize([]float64{4, 2}); s.median != 3 || s.spread() != 2.0/3 {
		t.Errorf("of two: got %+v, spread %v", s, s.spread())
	}
	if s := summarize([]float64{0, 0}); s.spread() != 0 {
		t.Errorf("of zeros: spread %v", s.spread())
	}
	if s := summarize(nil); !math.IsNaN(s.median) || s.n != 0 {
		t.Errorf("of nothing: got %+v", s)
	}
}
