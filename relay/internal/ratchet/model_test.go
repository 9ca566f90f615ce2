package ratchet_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/errandq/errand/relay/internal/ratchet"
)

// The model is both ends of the streams of one device, with the network between them: a device's file
// with two processes on it, or two clones of the file with one each. A step is one commit, or one
// message that arrives. Whatever is in a process of the device is lost by a kill. The server has only its
// file, so a kill of it is a request or an answer that never arrives.
const (
	maxJobs    = 3
	maxStreams = 2 // of a device
	maxBegun   = 6 // on the server
	maxPackets = 6
)

// The states of a job on the device. The zero value is not made yet.
const (
	absent = iota
	waiting
	leased
	done
	dead
	cancelled
)

type job struct {
	state  uint8
	by     uint8 // the process that has leased it
	kept   ratchet.Outcome
	sent   uint8 // the n of the send by which it was ended, or will be as it is kept
	on     uint8 // the ID of that send's stream
	named  bool
	judged ratchet.Outcome // what the server last said of it since it was redriven; the device does not know
	again  bool            // it was redriven
}

// file is that of a device.
type file struct {
	exists  bool
	rows    [maxStreams]ratchet.Device
	owner   [maxStreams]uint8 // the process, plus one
	stream  [maxStreams]uint8 // the stream's ID
	missing [maxStreams]ratchet.Missing
	of      [maxStreams]uint8 // the ID of the stream of which these are missing
	jobs    [maxJobs]job
}

type process struct {
	runs   [maxStreams]bool
	owner  [maxStreams]ratchet.Owner
	asking [maxStreams]ratchet.Request // under way
}

type server struct {
	streams [maxBegun]ratchet.Server
	jobs    [maxJobs]uint8 // how often each is there
	lookUp  bool
}

// packet is a request, or the answer to it.
type packet struct {
	p, k, stream uint8
	jobs         [maxJobs]uint8 // of a send: their numbers plus one
	request      ratchet.Request
	answer       ratchet.Answer // its Status is zero in a request
}

// budget is how often what goes wrong may happen in a history.
type budget struct {
	kills, takeovers, leases, refusals, laters, redrives, cancels, makes uint8
	putServerBack, putDeviceBack, clones                                 uint8
}

type world struct {
	server, savedServer server
	file, savedFile     file
	clone               file // of process 1
	saved               [2]bool
	processes           [2]process
	packets             [maxPackets]packet
	len                 uint8
	left                budget
	putBack             [3]bool // the server, the device, and that there is a clone
	fresh, begun        uint8   // how many tokens and request IDs, and streams, there were
	wrong               string  // what must not happen, and did
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// of returns the file of a process.
func (w *world) of(p uint8) *file {
	if p == 1 && w.clone.exists {
		return &w.clone
	}
	return &w.file
}

func (w *world) random() [16]byte {
	if w.fresh++; w.fresh == 0 {
		panic("a history has more tokens than there are")
	}
	return [16]byte{w.fresh}
}

// checks are the tokens behind the hashes of all tokens of a model.
var checks = func() map[ratchet.Check]uint8 {
	m := map[ratchet.Check]uint8{}
	for i := range 256 {
		m[ratchet.Token{uint8(i)}.Check()] = uint8(i)
	}
	return m
}()

// key returns a hash of a world. Worlds that differ only in the names of their tokens and requests,
// or in the order of packets, have the same key.
func (w *world) key(e *encoder) uint64 {
	*e = encoder{next: 1, buf: e.buf[:0], copy: e.copy[:0]}
	e.server(&w.server)
	e.bools(w.saved[0], w.saved[1], w.putBack[0], w.putBack[1], w.putBack[2])
	if w.saved[0] {
		e.server(&w.savedServer)
	}
	e.file(&w.file)
	if w.saved[1] {
		e.file(&w.savedFile)
	}
	e.file(&w.clone)
	for p := range w.processes {
		for k, o := range w.processes[p].owner {
			e.bools(w.processes[p].runs[k], o.Request != ratchet.ID{})
			e.buf = append(e.buf, byte(o.Phase))
			e.row(o.Row)
		}
	}
	l := w.left
	e.buf = append(e.buf, l.kills, l.takeovers, l.leases, l.refusals, l.laters, l.redrives, l.cancels, l.makes,
		l.putServerBack, l.putDeviceBack, l.clones)
	e.packets(w)
	sum := sha256.Sum256(e.buf)
	return binary.LittleEndian.Uint64(sum[:])
}

type encoder struct {
	buf   []byte
	copy  []byte
	names [256]uint8
	next  uint8
}

func (e *encoder) bools(all ...bool) {
	for _, b := range all {
		if b {
			e.buf = append(e.buf, 1)
		} else {
			e.buf = append(e.buf, 0)
		}
	}
}

func (e *encoder) token(t uint8) {
	if t != 0 && e.names[t] == 0 {
		e.names[t] = e.next
		e.next++
	}
	e.buf = append(e.buf, e.names[t])
}

func (e *encoder) row(r ratchet.Device) {
	e.buf = append(e.buf, byte(r.N))
	e.token(r.Token[0])
	e.bools(r.Held)
}

func (e *encoder) taking(s ratchet.Taking) {
	e.buf = append(e.buf, byte(s.N), byte(len(s.Verdicts)))
	for _, v := range s.Verdicts {
		e.buf = append(e.buf, v.Job[0], byte(v.Outcome))
	}
}

func (e *encoder) server(s *server) {
	for _, t := range s.streams {
		if t.N == 0 && !t.Held && t.Accepted == 0 {
			e.buf = append(e.buf, 0)
			continue
		}
		e.buf = append(e.buf, byte(t.N))
		e.token(t.T[0])
		e.token(t.P[0])
		e.taking(t.S)
		e.bools(t.Held, t.Back.By)
		e.buf = append(e.buf, byte(t.Back.N), byte(t.Accepted))
		e.token(t.Back.Token[0])
	}
	e.buf = append(e.buf, s.jobs[:]...)
	e.bools(s.lookUp)
}

func (e *encoder) file(f *file) {
	e.bools(f.exists)
	if !f.exists {
		return
	}
	for k := range f.rows {
		e.row(f.rows[k])
		e.buf = append(e.buf, f.owner[k], f.stream[k], byte(f.missing[k].Before), f.of[k])
		e.taking(f.missing[k].S)
	}
	for _, j := range f.jobs {
		e.buf = append(e.buf, j.state, j.by, byte(j.kept), j.sent, j.on, byte(j.judged))
		e.bools(j.named, j.again)
	}
}

func (e *encoder) packets(w *world) {
	start := len(e.buf)
	var parts [maxPackets][2]int
	for i, p := range w.packets[:w.len] {
		from := len(e.buf)
		r, a := p.request, p.answer
		e.buf = append(e.buf, p.p, p.k, p.stream, byte(r.Kind), byte(r.N))
		e.buf = append(e.buf, p.jobs[:]...)
		e.token(r.Token[0])
		e.token(checks[r.Check])
		e.bools(w.processes[p.p].owner[p.k].Request == r.ID)
		e.buf = append(e.buf, byte(a.Status), byte(a.N))
		e.token(checks[a.Check])
		e.token(a.T[0])
		e.taking(a.S)
		parts[i] = [2]int{from, len(e.buf)}
	}
	e.copy = append(e.copy, e.buf...)
	all := e.copy
	slices.SortFunc(parts[:w.len], func(a, b [2]int) int { return bytes.Compare(all[a[0]:a[1]], all[b[0]:b[1]]) })
	e.buf = e.buf[:start]
	for _, p := range parts[:w.len] {
		e.buf = append(append(e.buf, 255), all[p[0]:p[1]]...)
	}
}
