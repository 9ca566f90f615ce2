package ratchet_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
)

var full = flag.Bool("full", false, "search the model to 17 steps, and go through 1,000,000 long histories, in about 10 minutes: add -timeout 0")

// group is that of jobs which have one.
var group = [maxJobs]string{"g", "g", ""}

// models are the worlds that are searched. In each some things go wrong, as often as its budget says;
// requests and answers are lost, late, doubled and out of order in all of them.
var models = map[string]model{
	"start": {jobs: 2, streams: 1, groups: group, two: true,
		left: budget{kills: 1, takeovers: 2, leases: 1, refusals: 1}},
	"processes": {jobs: 2, streams: 1, groups: group, two: true, established: true,
		left: budget{kills: 1, takeovers: 2, leases: 1, refusals: 1, redrives: 1}},
	"verdicts": {jobs: 3, streams: 1, groups: group, established: true,
		left: budget{kills: 1, leases: 1, refusals: 1, laters: 1, redrives: 1, cancels: 1}},
	"server put back": {jobs: 2, streams: 1, groups: group, two: true, established: true, late: true,
		left: budget{makes: 1, kills: 1, takeovers: 1, putServerBack: 1, refusals: 1, redrives: 1}},
	"device put back": {jobs: 2, streams: 1, groups: group, two: true, established: true, late: true,
		left: budget{makes: 1, kills: 1, takeovers: 1, putDeviceBack: 1, refusals: 1, redrives: 1}},
	"clone": {jobs: 2, streams: 1, groups: group, established: true, late: true,
		left: budget{makes: 1, kills: 1, clones: 1, refusals: 1, redrives: 1}},
	"device put back, and a clone": {jobs: 2, streams: 1, groups: group, established: true, late: true,
		left: budget{makes: 1, putDeviceBack: 1, clones: 1}},
	"two streams": {jobs: 2, streams: 2, streamOf: [maxJobs]uint8{0, 1}, established: true,
		left: budget{kills: 1, putServerBack: 1}},
	"two streams, and a clone": {jobs: 2, streams: 2, streamOf: [maxJobs]uint8{0, 1}, established: true,
		left: budget{clones: 1}},
	"one job": {jobs: 1, streams: 1, established: true},
}

// visit is how a world was come to.
type visit struct {
	parent int32
	step   step
}

// search goes through all histories of up to depth steps, breadth first. It returns the number of
// different worlds, and the shortest history to one that is wrong, or from which going on is. It goes
// on from one world in so many, chosen by their keys.
func (m *model) search(depth int, finish uint64) (met int, history []string) {
	type here struct {
		at int32
		w  *world
	}
	var e encoder
	all := []visit{{parent: -1}}
	level := []here{{0, m.start()}}
	seen := map[uint64]struct{}{level[0].w.key(&e): {}}
	for d := range depth {
		var next []here
		for _, h := range level {
			m.steps(h.w, anyStep, func(s step, w *world) {
				key := w.key(&e)
				if _, ok := seen[key]; history != nil || ok && w.wrong == "" {
					return
				}
				seen[key] = struct{}{}
				all = append(all, visit{h.at, s})
				at := int32(len(all) - 1)
				wrong := w.wrong
				if wrong == "" && key%finish == 0 {
					wrong = m.finish(w)
				}
				if wrong != "" {
					for history = []string{wrong}; at > 0; at = all[at].parent {
						history = append([]string{all[at].step.String()}, history...)
					}
				} else if d < depth-1 {
					after := *w
					next = append(next, here{at, &after})
				}
			})
			if history != nil {
				return len(all), history
			}
		}
		level = next
	}
	return len(all), nil
}

func TestJudge(t *testing.T) {
	said := map[byte]ratchet.Outcome{1: ratchet.Refused, 2: ratchet.Refused, 3: ratchet.Enqueued, 5: ratchet.Duplicate, 6: ratchet.Later}
	jobs := []ratchet.Job{
		{ID: ratchet.ID{1}, Group: "a"}, {ID: ratchet.ID{2}}, {ID: ratchet.ID{3}}, {ID: ratchet.ID{4}, Group: "a"},
		{ID: ratchet.ID{5}, Group: "b"}, {ID: ratchet.ID{6}, Group: "b"}, {ID: ratchet.ID{7}},
	}
	got := ratchet.Judge(jobs, func(j ratchet.Job) (ratchet.Outcome, string) {
		o, ok := said[j.ID[0]]
		if !ok {
			t.Errorf("job %d is tried", j.ID[0])
		}
		return o, "why"
	})
	for i, want := range []ratchet.Outcome{ratchet.Refused, ratchet.Refused, ratchet.Enqueued, ratchet.Behind, ratchet.Duplicate, ratchet.Later, ratchet.Later} {
		if got[i].Job != jobs[i].ID || got[i].Outcome != want {
			t.Errorf("job %d: %v, want outcome %d", i+1, got[i], want)
		}
	}
}

func (m *model) mustHold(t *testing.T, history []string) {
	t.Helper()
	for i, s := range history {
		t.Logf("%2d %s", i+1, s)
	}
	if history != nil {
		t.Error("the last line must not be")
	}
}

func TestModel(t *testing.T) {
	depth, finish := 14, uint64(8)
	switch {
	case *full:
		depth, finish = 17, 1
	case testing.Short():
		depth = 10
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			met, history := m.search(depth, finish)
			t.Logf("%d worlds in up to %d steps", met, depth)
			m.mustHold(t, history)
		})
	}
}

// Histories of 50 steps, of which one in twelve is a mishap.
func TestModel_long(t *testing.T) {
	histories := 5_000
	if *full {
		histories = 1_000_000
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			l := &m.left
			l.kills, l.takeovers, l.leases, l.refusals, l.laters, l.redrives = 9, 9, 9, 2, 2, 9
			for seed := range uint64(histories/len(models) + 1) {
				if _, history := m.walk(seed, 50); history != nil {
					t.Logf("seed %d", seed)
					m.mustHold(t, history)
					return
				}
			}
		})
	}
}

// walk goes through one random history, and returns the last world, and the history if it is wrong.
func (m *model) walk(seed uint64, steps int) (w *world, history []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	w = m.start()
	for range steps {
		var chosen world
		var how step
		n := 0
		choose := func(s step, after *world) {
			if n++; r.IntN(n) == 0 {
				chosen, how = *after, s
			}
		}
		kind := ofNetwork
		switch r.IntN(12) {
		case 0:
			kind = mishap
		case 1, 2, 3:
			kind = ofDevice
		}
		if m.steps(w, kind, choose); n == 0 {
			m.steps(w, anyStep, choose)
		}
		if n == 0 {
			break
		}
		*w = chosen
		history = append(history, how.String())
		if w.wrong != "" {
			return w, append(history, w.wrong)
		}
	}
	if wrong := m.finish(w); wrong != "" {
		return w, append(history, wrong)
	}
	return w, nil
}

// A request of no kind that is known, or with an n that no stream comes to, has no effect, whatever it shows.
func TestServer_NoRequest(t *testing.T) {
	s := ratchet.Server{N: 5, T: ratchet.Token{5}, P: ratchet.Token{4}}
	for _, token := range []ratchet.Token{{5}, {4}, {3}} {
		for _, r := range []ratchet.Request{
			{Kind: 0}, {Kind: ratchet.Send + 1}, {Kind: ratchet.Ask, N: 1<<62 + 1, Check: s.T.Check()}, {Kind: ratchet.Send, N: 1<<62 + 1},
		} {
			r.ID, r.Token = ratchet.ID{1}, token
			got, a := s.Answer(r, ratchet.Token{6}, func() []ratchet.Verdict { t.Error("it is taken"); return nil })
			if a.Status != ratchet.Stale || got.N != s.N || got.T != s.T || got.Held || got.Back.By {
				t.Errorf("kind %d, n %d, token %v: status %d, %+v", r.Kind, r.N, token[0], a.Status, got)
			}
		}
	}
}
