package ratchet_test

import (
	"fmt"
	"testing"
	"time"
)

// entry is a world that was met, without the world: how it was come to.
type entry struct {
	parent int32
	step   step
}

// search goes through all histories of up to depth steps, breadth first, and returns the number of
// different worlds, and the shortest history to one that must not be.
func (m *model) search(depth, most int, finish uint64) (met int, history []string) {
	seen := map[uint64]bool{}
	all := []entry{{parent: -1}}
	type here struct {
		at int32
		w  *world
	}
	level := []here{{0, m.start()}}
	seen[level[0].w.key()] = true
	for range depth {
		var next []here
		for _, h := range level {
			m.steps(h.w, func(s step, w *world) {
				if history != nil {
					return
				}
				key := w.key()
				if seen[key] && w.wrong == "" {
					return
				}
				seen[key] = true
				all = append(all, entry{h.at, s})
				wrong := w.wrong
				if wrong == "" && finish > 0 && key%finish == 0 {
					wrong = m.finish(w)
				}
				if wrong != "" {
					history = []string{wrong}
					for at := int32(len(all) - 1); at > 0; at = all[at].parent {
						history = append([]string{all[at].step.String()}, history...)
					}
					return
				}
				next = append(next, here{int32(len(all) - 1), w})
			})
			if history != nil || len(all) > most {
				return len(all), history
			}
		}
		level = next
	}
	return len(all), nil
}

func models() map[string]*model {
	g := [maxJobs]string{"g", "g", ""}
	return map[string]*model{
		"start":       {jobs: 2, streams: 1, groups: g, two: true, left: budget{kills: 1, takeovers: 2, leases: 1}},
		"processes":   {jobs: 2, streams: 1, groups: g, two: true, established: true, left: budget{kills: 1, takeovers: 2, leases: 1, refusals: 1, redrives: 1}},
		"verdicts":    {jobs: 3, streams: 1, groups: g, established: true, left: budget{kills: 1, leases: 1, refusals: 2, laters: 1, redrives: 1, cancels: 1}},
		"server back": {jobs: 2, streams: 1, groups: g, established: true, late: true, left: budget{makes: 1, kills: 1, putServerBack: 1, refusals: 1, redrives: 1}},
		"device back": {jobs: 2, streams: 1, groups: g, established: true, late: true, left: budget{makes: 1, kills: 1, putDeviceBack: 1, refusals: 1, redrives: 1}},
		"clone":       {jobs: 2, streams: 1, groups: g, established: true, late: true, left: budget{makes: 1, kills: 1, clones: 1}},
		"streams":     {jobs: 2, streams: 2, streamOf: [maxJobs]uint8{0, 1, 0}, established: true, left: budget{kills: 1, putServerBack: 1}},
	}
}

func TestTry(t *testing.T) {
	for name, m := range models() {
		for d := 6; d < 15; d += 2 {
			start := time.Now()
			n, h := m.search(d, 1<<20, 16)
			fmt.Println(name, d, n, time.Since(start))
			for _, s := range h {
				fmt.Println("   ", s)
			}
			if h != nil {
				break
			}
		}
	}
}
