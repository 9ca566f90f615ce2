package ratchet_test

import (
	"fmt"
	"strings"

	"github.com/errandq/errand/relay/internal/ratchet"
)

// step is one step of a history, for people.
type step struct {
	what    string
	a, b, c int
}

func (s step) String() string {
	return fmt.Sprintf(s.what, []any{s.a, s.b, s.c}[:strings.Count(s.what, "%d")]...)
}

// The kinds of steps: what a process of the device does, what arrives, and what goes wrong beside that.
const (
	ofDevice = 1 << iota
	ofNetwork
	mishap
	anyStep = ofDevice | ofNetwork | mishap
)

// steps calls emit with each step of some kinds from a world, and the world after it, which is
// overwritten later.
func (m *model) steps(w *world, kinds int, emit func(step, *world)) {
	var after world
	try := func(s step, do func(*world)) {
		after = *w
		do(&after)
		m.forget(&after)
		m.check(&after)
		emit(s, &after)
	}
	if kinds&ofDevice != 0 {
		m.deviceSteps(w, try)
	}
	if kinds&ofNetwork != 0 {
		m.networkSteps(w, try)
	}
	if kinds&mishap != 0 {
		m.mishaps(w, try)
	}
}

func (m *model) acts(w *world, p uint8) bool { return p == 0 || m.two || w.clone.exists }

func (m *model) deviceSteps(w *world, try func(step, func(*world))) {
	room := int(w.len) < maxPackets
	for p := range uint8(2) {
		for k := range uint8(m.streams) {
			if !m.acts(w, p) {
				continue
			}
			id := []int{int(p), int(k)}
			if !w.processes[p].runs[k] {
				was := w.of(p).owner[k]
				if was == 0 || was == p+1 || w.left.takeovers > 0 {
					try(step{"process %d takes over stream %d", id[0], id[1], 0}, func(w *world) {
						if was != 0 && was != p+1 {
							w.left.takeovers--
						}
						m.own(w, p, k)
					})
				}
				continue
			}
			o := w.processes[p].owner[k]
			if o.Phase != ratchet.Ready {
				if room {
					try(step{"process %d asks about stream %d, which had n %d", id[0], id[1], int(o.Row.N)}, func(w *world) { m.ask(w, p, k) })
				}
				continue
			}
			for most := 1; most <= m.jobs && room; most += max(1, m.jobs-1) {
				if after := *w; m.send(&after, p, k, most) {
					try(step{"process %d sends on stream %d, up to %d jobs", id[0], id[1], most}, func(w *world) { m.send(w, p, k, most) })
				}
			}
		}
	}
}

func (m *model) networkSteps(w *world, try func(step, func(*world))) {
	for i := range int(w.len) {
		p := w.packets[i]
		cuts := []bool{false}
		if m.broken != "" {
			cuts = append(cuts, true)
		}
		for _, cut := range cuts {
			switch {
			case int(w.len) == maxPackets:
			case p.answer.Status != 0:
				what := []string{"", "has c", "was taken", "is stale", "is held", "has forked", "resumes", "begins a new stream"}[p.answer.Status]
				try(step{"process %d learns on stream %d that it " + what, int(p.p), int(p.k), 0}, func(w *world) { m.deliver(w, i, -1, -1, cut) })
			default:
				what := map[ratchet.Kind]string{ratchet.AskCheck: "an ask for c", ratchet.Ask: "an ask", ratchet.Send: "a send"}[p.request.Kind]
				try(step{what + " of process %d arrives, stream %d, n %d", int(p.p), int(p.k), int(p.request.N)}, func(w *world) { m.deliver(w, i, -1, -1, cut) })
			}
		}
		if p.request.Kind == ratchet.Send && p.answer.Status == 0 && int(w.len) < maxPackets && !m.stale(&w.server, p) {
			m.verdicts(w, i, try)
		}
		if int(w.len) == maxPackets {
			try(step{"packet %d is lost", i, 0, 0}, func(w *world) {
				copy(w.packets[i:], w.packets[i+1:])
				w.len--
				w.packets[w.len] = packet{}
			})
		}
	}
}

// verdicts are the arrivals of a send of which not all jobs are enqueued.
func (m *model) verdicts(w *world, i int, try func(step, func(*world))) {
	for at, j := range w.packets[i].jobs {
		if j == 0 {
			return
		}
		if w.left.refusals > 0 {
			try(step{"a send of n %d arrives, job %d of it is refused", int(w.packets[i].request.N), at, 0}, func(w *world) {
				w.left.refusals--
				m.deliver(w, i, at, -1, false)
			})
		}
		if w.left.laters > 0 {
			try(step{"a send arrives, from its job %d on there is no room", at, 0, 0}, func(w *world) {
				w.left.laters--
				m.deliver(w, i, -1, at, false)
			})
		}
	}
}

func (m *model) mishaps(w *world, try func(step, func(*world))) {
	for p := range uint8(2) {
		if w.left.kills > 0 && w.processes[p] != (process{}) {
			try(step{"process %d is killed", int(p), 0, 0}, func(w *world) { w.left.kills--; m.kill(w, p) })
		}
		for k := range uint8(m.streams) {
			if w.left.leases > 0 && m.leases(w, p, k) {
				try(step{"process %d loses its leases on stream %d", int(p), int(k), 0}, func(w *world) { w.left.leases--; m.release(w, p, k) })
			}
		}
	}
	for i := range m.jobs {
		j := w.file.jobs[i]
		change := func(what string, left func(*world) *uint8, to uint8) {
			try(step{what, i, 0, 0}, func(w *world) { *left(w)--; m.change(w, &w.file, i, to) })
		}
		switch {
		case j.state == absent && w.left.makes > 0:
			change("job %d is made", func(w *world) *uint8 { return &w.left.makes }, waiting)
		case j.state == dead && w.left.redrives > 0:
			change("job %d is redriven", func(w *world) *uint8 { return &w.left.redrives }, waiting)
		case (j.state == waiting || j.state == leased) && w.left.cancels > 0:
			change("job %d is cancelled", func(w *world) *uint8 { return &w.left.cancels }, cancelled)
		}
	}
	m.copies(w, try)
}

func (m *model) leases(w *world, p, k uint8) bool {
	for i, j := range w.of(p).jobs {
		if j.state == leased && j.by == p && m.streamOf[i] == k {
			return true
		}
	}
	return false
}

// change makes, redrives or cancels a job of a file.
func (m *model) change(w *world, f *file, i int, to uint8) {
	j := &f.jobs[i]
	j.by = 0
	if to == cancelled {
		if j.kept != 0 {
			m.end(w, f, i, ratchet.Verdict{Outcome: j.kept}, j.sent, j.on, ratchet.Ended)
		}
	} else if j.state == dead {
		j.again, j.judged = true, 0
	}
	j.state = to
}

// copies are the steps that copy files, put them back, and accept.
func (m *model) copies(w *world, try func(step, func(*world))) {
	switch {
	case w.left.putServerBack == 0:
	case !w.saved[0]:
		try(step{what: "the server's file is copied"}, func(w *world) { w.savedServer, w.saved[0] = w.server, true })
	default:
		try(step{what: "the server is put back"}, func(w *world) {
			w.left.putServerBack--
			w.server, w.putBack[0], w.saved[0], w.savedServer = w.savedServer, true, false, server{}
		})
	}
	switch {
	case w.left.putDeviceBack == 0:
	case !w.saved[1]:
		try(step{what: "the device's file is copied"}, func(w *world) { w.savedFile, w.saved[1] = w.file, true })
	default:
		try(step{what: "the device is put back"}, func(w *world) {
			w.left.putDeviceBack--
			m.putDeviceBack(w)
			w.saved[1], w.savedFile = false, file{}
		})
	}
	if w.left.clones > 0 {
		try(step{what: "the device's card is cloned"}, func(w *world) { w.left.clones--; m.clone(w) })
	}
	for stream := range w.begun {
		if w.server.streams[stream].Held {
			try(step{"stream %d is accepted", int(stream), 0, 0}, func(w *world) { m.accept(w, stream) })
		}
	}
}
