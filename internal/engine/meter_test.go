package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A tally, which keeps no cells that are zero, has the numbers of one that keeps all.
func TestMeter_Tally(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var of tally
	var want Meter
	add := func(h *Histogram, d time.Duration) {
		for i := range h.Buckets {
			if i == len(Bounds) || d <= Bounds[i] {
				h.Buckets[i]++
				break
			}
		}
		h.Sum += d.Seconds()
	}
	for range 2000 {
		if random.IntN(10) == 0 {
			of.count(lostCell)
			want.Lost++
			continue
		}
		o := storage.Outcome(random.IntN(len(want.Attempts)))
		took := timing{wait: time.Duration(random.ExpFloat64() * float64(time.Minute)), took: time.Duration(random.ExpFloat64() * float64(time.Hour))}
		want.Attempts[o]++
		if took.began = time.Duration(random.IntN(2)); took.began > 0 {
			add(&want.Wait, took.wait)
			add(&want.Run, took.took)
		}
		if of.add(o, &took); of.meter() != want {
			t.Fatalf("a tally of %+v, want %+v", of.meter(), want)
		}
	}
}
