package engine

import (
	"testing"

	"github.com/errandq/errand/storage"
)

// A hold is told of when it is first written, also if it was changed before that.
func TestRulings_ToldOnce(t *testing.T) {
	var h holds
	n := storage.Hold{Lane: storage.Lane{Queue: "q", Kind: "k"}, Reason: storage.HoldUnavailable}
	var x storage.Exchange
	again := func() bool { return h.rulings.waiting[0].again }
	h.begin(n, t0)
	h.begin(n, t0)
	if len(h.rulings.waiting) != 1 || again() {
		t.Errorf("waiting are %+v", h.rulings.waiting)
	}
	h.rulings.send(&x)
	h.begin(n, t0)
	if !again() {
		t.Error("a hold that is being written is told of again")
	}
	h.rulings.putBack()
	if again() {
		t.Error("a hold that was not written is not told of")
	}
}

func TestMark(t *testing.T) {
	for _, c := range []struct{ retry, all, want int }{
		{0, 0, 0}, {0, 1, 0}, {1, 3, 0}, {0, 4, 0}, {1, 4, 50}, {2, 4, 70}, {3, 4, 90}, {4, 4, 0},
		{12, 27, 0}, {13, 27, 50}, {14, 27, 0}, {18, 27, 70}, {24, 27, 90}, {26, 27, 0},
	} {
		if got := mark(c.retry, c.all); got != c.want {
			t.Errorf("retry %d of %d reaches %d, want %d", c.retry+1, c.all, got, c.want)
		}
	}
}
