package engine

import (
	"testing"
	"testing/synctest"
)

// Of runners that have ended nothing is kept, however many there were.
func TestRunners_Ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunners(t.Context(), nil, 2, 2+mostApart)
		for range 100 {
			r.apart = 10
			r.adjust()
			r.apart = 0
			r.adjust()
			synctest.Wait()
		}
		r.adjust()
		if r.alive != 2 || len(r.gone) != 0 {
			t.Errorf("%d runners are known, and %d that have ended: want 2 and 0", r.alive, len(r.gone))
		}
		r.dismiss()
	})
}
