package ratchet_test

import "github.com/errandq/errand/relay/internal/ratchet"

// answer is a server's transaction on a request. The packet is changed into its answer.
func (m *model) answer(s *server, p *packet, fresh ratchet.Token, judge func() []ratchet.Verdict) {
	r := p.request
	before := s.streams[p.stream]
	switch m.broken {
	case "an ask is two requests", "c is the hash of T":
		if r.Kind == ratchet.Ask {
			r.Check = before.T.Check()
		}
	case "a fork is found only with a good c":
		if r.Kind == ratchet.Ask && r.Token != before.T && r.Token != before.P {
			r.Check = before.T.Check()
		}
	case "the token of a send is T":
		if r.Kind == ratchet.Send {
			r.Token = before.T
		}
	case "the token of a send is not P":
		if r.Kind == ratchet.Send && r.Token == before.P {
			r.Token = before.T
		}
	case "an ask may show P":
		if r.Kind == ratchet.Ask && r.Token != before.T {
			before.P = before.T
		}
	case "a fork holds the stream":
		if r.Kind == ratchet.Ask && r.Check == before.T.Check() {
			before.P = r.Token
		}
	case "a stream that is held takes nothing":
		before.Held = false
	}
	after, a := before.Answer(r, fresh, judge)
	if a.Status == ratchet.Taken && r.Kind == ratchet.Ask {
		switch m.broken {
		case "an ask changes T":
			after.T, a.T = before.T, before.T
		case "P is the token shown":
			after.P = before.T
		case "an ask leaves S":
			after.S = ratchet.Taking{}
		}
	}
	if a.Status != ratchet.Taken && m.broken == "a stream that is held takes nothing" {
		after.Held = after.Held || s.streams[p.stream].Held
	}
	s.streams[p.stream] = after
	p.answer = a
}

// deliver brings a packet to its end. A request stays on the network, and may come again.
func (m *model) deliver(w *world, i int, refuse, later int, cut bool) {
	p := w.packets[i]
	if p.answer.Status != 0 {
		m.receive(w, p, cut)
		return
	}
	before := w.server
	m.answer(&w.server, &p, w.random(), func() []ratchet.Verdict { return m.judge(w, &p, refuse, later) })
	if cut && m.broken == "jobs and row are one commit" {
		w.server.streams = before.streams
		return
	}
	if cut && m.broken == "the answer leaves after the commit" {
		w.server = before
	}
	if p.answer.Status != ratchet.Stale {
		m.transmit(w, p)
	}
}

func (m *model) receive(w *world, p packet, cut bool) {
	proc := &w.processes[p.p]
	o := &proc.owner[p.k]
	if m.broken == "an answer is to the request under way" {
		a, b := p.request, proc.asking[p.k]
		a.ID, b.ID = ratchet.ID{}, ratchet.ID{}
		if a == b && o.Request != (ratchet.ID{}) {
			p.answer.Request = o.Request
		}
	}
	after, s := o.Receive(p.answer)
	if m.broken == "verdicts are of the send under way" && p.answer.Status == ratchet.Taken {
		s.Verdicts, s.Of = p.answer.S.Verdicts, p.answer.S.N
	}
	switch {
	case s.Missing.Before == 0:
	case m.broken == "missing is what came after S":
		s.Missing.S = ratchet.Taking{N: p.answer.N - 1}
	case m.broken == "what S says of a job goes before":
		s.Missing.S.Verdicts = nil
	case m.broken == "who goes on is told what is missing" && p.answer.Status == ratchet.Resumed:
		s.Missing = ratchet.Missing{}
	}
	*o = after
	switch o.Phase {
	case ratchet.MustConfirm:
		f := w.of(p.p)
		if f.owner[p.k] != p.p+1 && m.broken != "the owner is checked before the ask" {
			m.disown(w, p.p, p.k)
			return
		}
		o2, r := o.Ask(w.random())
		*o = o2
		m.request(w, p.p, p.k, r, [maxJobs]uint8{})
	case ratchet.Settling:
		if cut && m.broken == "it sends after the commit" {
			*o = o.Settled(s)
			return
		}
		m.settle(w, p.p, p.k, s, cut)
	}
}

// forget takes away the packets that can have no effect any more, as if they were lost: answers
// to requests that are not under way, and requests that are stale, which they remain, as no token
// ever comes back. A request that comes to a server that was put back may have an effect again.
func (m *model) forget(w *world) {
	kept := w.packets[:0]
	for i := range w.len {
		p := w.packets[i]
		current := w.processes[p.p].owner[p.k].Request == p.request.ID
		switch {
		case m.broken == "an answer is to the request under way" && p.answer.Status != 0:
		case p.answer.Status != 0 || p.request.Kind == ratchet.AskCheck:
			if !current {
				continue
			}
		case m.stale(&w.server, p) && (!w.saved[0] || m.stale(&w.savedServer, p)):
			continue
		}
		kept = append(kept, p)
	}
	for i := len(kept); i < int(w.len); i++ {
		w.packets[i] = packet{}
	}
	w.len = uint8(len(kept))
}

// stale reports whether a request has no effect on a server.
func (m *model) stale(s *server, p packet) bool {
	before := s.streams[p.stream]
	m.answer(s, &p, ratchet.Token{}, func() []ratchet.Verdict { return nil })
	s.streams[p.stream] = before
	return p.answer.Status == ratchet.Stale
}

// putDeviceBack puts the device's file back to its copy. Its processes end before.
func (m *model) putDeviceBack(w *world) {
	w.file, w.putBack[1] = w.savedFile, true
	for p := range uint8(2) {
		m.kill(w, p)
	}
	w.file.owner = [maxStreams]uint8{}
}

func (m *model) kill(w *world, p uint8) {
	for k := range uint8(m.streams) {
		m.disown(w, p, k)
	}
	w.processes[p] = process{}
}

func (m *model) clone(w *world) {
	kept := w.processes
	m.kill(w, 1)
	w.clone, w.putBack[2] = w.file, true
	w.clone.owner = [maxStreams]uint8{}
	for i := range w.clone.jobs {
		if j := &w.clone.jobs[i]; j.state == leased {
			j.state, j.by = waiting, 0
		}
	}
	w.processes[0] = kept[0]
}

func (m *model) accept(w *world, stream uint8) {
	s := &w.server.streams[stream]
	after := s.Accept(w.random())
	switch m.broken {
	case "nobody has T after accept":
		after.T = s.T
	case "who shows the highest n goes on":
		after.Back = ratchet.Fork{}
	case "others get new streams":
		after.Accepted = 0
	}
	*s = after
	w.server.lookUp = m.broken != "after accept jobs are looked up"
}
