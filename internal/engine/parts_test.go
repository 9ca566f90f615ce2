package engine

import (
	"testing"
	"testing/synctest"
)

// What calls of one source show of their sizes may not go together, as they have other bytes, or
// ran at the same time. The largest that has passed is always smaller than the smallest that has not.
func TestSizing_Contradictory(t *testing.T) {
	for name, calls := range map[string][][2]int{ // refused, passed in parts
		"a larger one passed":      {{30, 15}, {100, 50}},
		"as large":                 {{30, 15}, {60, 30}},
		"a smaller one is refused": {{100, 50}, {30, 15}},
		"again and again":          {{30, 15}, {100, 50}, {30, 15}, {100, 50}, {2, 1}, {1000, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var z sizing
				for _, c := range calls {
					z.tooMany(c[0], c[1])
					if z.passed >= z.refused || z.refused > c[0] {
						t.Fatalf("after a call of %d of which parts of %d passed: %d pass, %d do not", c[0], c[1], z.passed, z.refused)
					}
				}
				b := &batch{sizing: &z}
				for tries := 0; z.try(b) > 0; tries++ {
					if n := b.takes(1000); tries > 20 || n <= z.passed || n >= z.refused {
						t.Fatalf("try %d is of %d jobs, with %d passed and %d refused", tries, n, z.passed, z.refused)
					} else {
						z.tooMany(n, n/2)
					}
				}
			})
		})
	}
}
