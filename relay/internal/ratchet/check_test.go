package ratchet_test

import "github.com/errandq/errand/relay/internal/ratchet"

// check is what holds in every world.
func (m *model) check(w *world) {
	if w.putBack == [3]bool{} {
		for stream := range w.begun {
			if s := w.server.streams[stream]; s.Held || s.Accepted > 0 {
				w.fail("stream %d has forked, and no file was put back or cloned", stream)
			}
		}
	}
	for p := range uint8(2) {
		if f := w.of(p); p == 0 || w.clone.exists {
			m.checkFile(w, f)
		}
	}
}

// said reports whether the device knows, or has written down, that the server has a job.
func (j job) said() bool {
	kept := j.kept == ratchet.Enqueued || j.kept == ratchet.Duplicate
	return j.state == done || kept && j.state != cancelled
}

// missed reports whether a job of a file is listed as missing.
func (m *model) missed(f *file, i int) bool {
	k, j := m.streamOf[i], f.jobs[i]
	return f.of[k] == j.on && f.missing[k].Has(ratchet.ID{uint8(i + 1)}, uint64(j.sent))
}

func (m *model) checkFile(w *world, f *file) {
	for i := range m.jobs {
		j := f.jobs[i]
		there := w.server.jobs[i] > 0
		listed := f.missing[m.streamOf[i]].Before > 0
		switch {
		case j.said() && !there && !w.putBack[0]:
			w.fail("job %d is done, and the server has never had it", i)
		case j.said() && listed && there == m.missed(f, i):
			w.fail("job %d: on the server %v, and listed as missing too, or neither", i, there)
		case j.state == dead && there && w.putBack == [3]bool{}:
			w.fail("job %d is dead, and on the server", i)
		case j.named && j.state == done:
			w.fail("job %d is named, and was done", i)
		}
	}
}

// finish goes on from a world with nothing that goes wrong any more. First the streams that are not
// held go on, then, after accept, all of them, then the dead jobs are redriven. In the end each job has ended on the device, and is on
// the server once, unless it was cancelled or is listed as missing.
func (m *model) finish(from *world) string {
	w := *from
	w.left, w.len, w.packets = budget{}, 0, [maxPackets]packet{}
	m.kill(&w, 0)
	m.kill(&w, 1)
	for phase := range 3 {
		accept := phase > 0
		for i := 0; i < m.jobs && phase == 2; i++ {
			for p := range uint8(2) {
				if f := w.of(p); f.jobs[i].state == dead {
					m.change(&w, f, i, waiting)
				}
			}
		}
		for n := 0; n < 8 && w.wrong == "" && (n < 2 || m.waits(&w, accept)); n++ {
			for p := range uint8(2) {
				for k := range uint8(m.streams) {
					if p == 0 || w.clone.exists {
						m.round(&w, p, k, accept)
					}
				}
			}
		}
		if w.wrong == "" && m.waits(&w, accept) {
			w.fail("in the end a job has not ended on the device")
		}
	}
	for p := range uint8(2) {
		for i, j := range w.of(p).jobs {
			there := w.server.jobs[i] == 1
			switch {
			case j.state == dead:
				w.fail("in the end job %d is dead", i)
			case j.state == done && !there && !m.missed(w.of(p), i):
				w.fail("in the end job %d is not on the server, and not listed", i)
			case j.state == cancelled && there && !j.named && w.putBack == [3]bool{}:
				w.fail("in the end job %d is on the server, was cancelled here, and is not named", i)
			}
		}
	}
	if w.wrong != "" {
		return "going on: " + w.wrong
	}
	return ""
}

// waits reports whether a job has not ended on the device, and could have.
func (m *model) waits(w *world, accept bool) bool {
	for p := range uint8(2) {
		f := w.of(p)
		for i, j := range f.jobs {
			held := w.server.streams[f.stream[m.streamOf[i]]].Held
			if (j.state == waiting || j.state == leased) && (accept || !held) {
				return true
			}
		}
	}
	return false
}

// round lets one process own a stream, ask, and send what there is. If accept is true, a hold is ended.
func (m *model) round(w *world, p, k uint8, accept bool) {
	step := func() {
		for w.len > 0 && w.wrong == "" {
			was := w.len
			m.deliver(w, int(w.len)-1, -1, -1, false)
			// Each packet arrives once.
			copy(w.packets[was-1:], w.packets[was:])
			w.len--
			w.packets[w.len] = packet{}
			m.check(w)
		}
	}
	if !w.processes[p].runs[k] || w.of(p).owner[k] != p+1 {
		m.own(w, p, k)
	}
	if w.processes[p].owner[k].Phase != ratchet.Ready {
		m.ask(w, p, k)
		step()
	}
	if stream := w.of(p).stream[k]; w.server.streams[stream].Held {
		if accept {
			m.accept(w, stream)
		}
		return
	}
	if w.processes[p].owner[k].Phase == ratchet.Ready {
		m.send(w, p, k, m.jobs)
		m.check(w)
		step()
	}
}
