package ratchet_test

import "github.com/errandq/errand/relay/internal/ratchet"

// check is what holds in every world.
func (m *model) check(w *world) {
	if w.putBack == [3]bool{} {
		for stream := range w.begun {
			if s := w.server.streams[stream]; s.Held || s.Fork.By {
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

func (m *model) checkFile(w *world, f *file) {
	for i := range m.jobs {
		j := f.jobs[i]
		there := w.server.jobs[i] > 0
		listed := f.missing[m.streamOf[i]].before > 0
		switch {
		case j.said() && !there && !w.putBack[0]:
			w.fail("job %d is done, and the server has never had it", i)
		case j.said() && listed && there == f.missing[m.streamOf[i]].has(i, j.sent):
			w.fail("job %d: on the server %v, and listed as missing too, or neither", i, there)
		case j.state == dead && there && w.putBack == [3]bool{}:
			w.fail("job %d is dead, and on the server", i)
		case j.named && !(j.state == cancelled && (there || w.putBack[0])):
			w.fail("job %d is named, and not cancelled here and on the server", i)
		}
	}
}

// finish goes on from a world with nothing that goes wrong any more, and accepts each hold. In the end
// each job has ended on the device, and is on the server once, unless it was refused, cancelled or
// is listed as missing.
func (m *model) finish(from *world) string {
	w := *from
	w.left, w.len, w.packets = budget{}, 0, [maxPackets]packet{}
	m.kill(&w, 0)
	m.kill(&w, 1)
	for range 12 {
		for p := range uint8(2) {
			if p == 1 && !w.clone.exists {
				continue
			}
			for k := range uint8(m.streams) {
				m.round(&w, p, k)
			}
		}
		if w.wrong != "" {
			return "going on: " + w.wrong
		}
	}
	for p := range uint8(2) {
		if p == 1 && !w.clone.exists {
			continue
		}
		f := w.of(p)
		for i := range m.jobs {
			j := f.jobs[i]
			there := w.server.jobs[i] == 1
			switch {
			case j.state == waiting || j.state == leased:
				w.fail("in the end job %d has not ended on the device", i)
			case j.state == done && !there && !f.missing[m.streamOf[i]].has(i, j.sent):
				w.fail("in the end job %d is not on the server, and not listed", i)
			case j.state == cancelled && there && !j.named && w.putBack == [3]bool{}:
				w.fail("in the end job %d is on the server, was cancelled here, and is not named", i)
			}
		}
	}
	return w.wrong
}

// round lets one process own a stream, ask, and send what there is.
func (m *model) round(w *world, p, k uint8) {
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
		m.accept(w, stream)
		return
	}
	if w.processes[p].owner[k].Phase == ratchet.Ready {
		m.send(w, p, k, m.jobs)
		m.check(w)
		step()
	}
}
