package ratchet_test

import (
	"slices"

	"github.com/errandq/errand/relay/internal/ratchet"
)

// model is a world's rules: those of the package, or these with one of them broken.
type model struct {
	jobs, streams int
	two           bool // processes on the file
	groups        [maxJobs]string
	streamOf      [maxJobs]uint8
	established   bool // process 0 owns the streams, and may send
	late          bool // job 0 is not made at first
	left          budget
	broken        string
}

func (m *model) start() *world {
	w := &world{left: m.left, begun: uint8(m.streams)}
	w.file.exists = true
	for k := range uint8(m.streams) {
		w.file.stream[k] = k
		if m.established {
			w.server.streams[k] = ratchet.Server{N: 1, T: ratchet.Token(w.random())}
			w.file.rows[k] = ratchet.Device{N: 1, Token: w.server.streams[k].T}
			w.file.owner[k] = 1
			w.processes[0].runs[k] = true
			w.processes[0].owner[k] = ratchet.Owner{Row: w.file.rows[k]}.Settled(ratchet.Settlement{After: w.file.rows[k]})
		}
	}
	for j := range m.jobs {
		w.file.jobs[j].state = waiting
	}
	if m.late {
		w.file.jobs[m.jobs-1].state = absent
	}
	return w
}

// transmit puts a packet on the network, where one is as good as several, since any may arrive more than once.
func (m *model) transmit(w *world, p packet) {
	for _, q := range w.packets[:w.len] {
		a, b := p.answer, q.answer
		if p.p == q.p && p.k == q.k && p.request == q.request && a.Status == b.Status && a.T == b.T && a.Check == b.Check {
			return
		}
	}
	w.packets[w.len] = p
	w.len++
}

func (m *model) request(w *world, p, k uint8, r ratchet.Request, jobs [maxJobs]uint8) {
	w.processes[p].asking[k] = r
	m.transmit(w, packet{p: p, k: k, stream: w.of(p).stream[k], jobs: jobs, request: r})
}

// own makes a process the owner of a stream.
func (m *model) own(w *world, p, k uint8) {
	f := w.of(p)
	f.owner[k] = p + 1
	w.processes[p].runs[k] = true
	o := ratchet.Owner{Row: f.rows[k]}
	if m.broken == "who takes over asks first" && o.Row.N > 0 {
		o.Phase = ratchet.Ready
	}
	w.processes[p].owner[k] = o
}

// disown ends what a process does on a stream, and returns its jobs.
func (m *model) disown(w *world, p, k uint8) {
	w.processes[p].runs[k], w.processes[p].owner[k] = false, ratchet.Owner{}
	m.release(w, p, k)
}

func (m *model) release(w *world, p, k uint8) {
	f := w.of(p)
	for i := range f.jobs {
		if j := &f.jobs[i]; j.state == leased && j.by == p && m.streamOf[i] == k {
			j.state, j.by = waiting, 0
		}
	}
}

func (m *model) ask(w *world, p, k uint8) {
	o, r := w.processes[p].owner[k].AskCheck(w.random())
	if m.broken == "an ask is two requests" {
		o, r = o.Ask(w.random())
	}
	w.processes[p].owner[k] = o
	m.request(w, p, k, r, [maxJobs]uint8{})
}

// send leases up to most jobs of a stream, in order, and sends those that are not kept with a verdict.
// A job of a group is leased only if no earlier one of it is leased by another process.
func (m *model) send(w *world, p, k uint8, most int) bool {
	f := w.of(p)
	var jobs [maxJobs]uint8
	n := 0
	did := false
	other := map[string]bool{}
	for i := range m.jobs {
		j := &f.jobs[i]
		if m.streamOf[i] != k || n == most {
			continue
		}
		if j.state == leased && j.by != p && m.groups[i] != "" {
			other[m.groups[i]] = true
		}
		if j.state != waiting && (j.state != leased || j.by != p) || other[m.groups[i]] {
			continue
		}
		if j.kept != 0 && m.broken != "a kept job is not sent" {
			m.end(w, f, i, ratchet.Verdict{Outcome: j.kept}, j.sent, j.on, ratchet.Leased)
			did = true
			continue
		}
		j.state, j.by = leased, p
		jobs[n] = uint8(i + 1)
		n++
	}
	if n == 0 {
		return did
	}
	o, r := w.processes[p].owner[k].Send(w.random())
	w.processes[p].owner[k] = o
	m.request(w, p, k, r, jobs)
	return true
}

// end does to a job of a file what a verdict does.
func (m *model) end(w *world, f *file, i int, v ratchet.Verdict, of, on uint8, at ratchet.Place) {
	j := &f.jobs[i]
	if m.broken != "a kept verdict is deleted as it ends its job" {
		j.kept = 0
	}
	switch v.On(at) {
	case ratchet.Finish, ratchet.Bury:
		if w.putBack == [3]bool{} && j.judged != v.Outcome {
			w.fail("job %d is ended by verdict %d, and the server's last was %d", i, v.Outcome, j.judged)
		}
		j.by, j.sent, j.on, j.state = 0, of, on, done
		if v.Outcome == ratchet.Refused {
			j.state = dead
		}
	case ratchet.Return:
		j.state, j.by = waiting, 0
	case ratchet.Keep:
		if m.broken != "a job that cannot be ended is kept with its verdict" {
			j.kept, j.sent, j.on = v.Outcome, of, on
		}
	case ratchet.Name:
		j.named = m.broken != "a job that was cancelled here is named"
	}
}

// settle is the commit of a settlement. If it is cut, only the first part of it is done, where it is
// two commits.
func (m *model) settle(w *world, p, k uint8, s ratchet.Settlement, cut bool) {
	f := w.of(p)
	if f.owner[k] != p+1 && m.broken != "the owner is checked in the commit" {
		m.disown(w, p, k)
		return
	}
	for _, v := range s.Verdicts {
		i := int(v.Job[0]) - 1
		j, at := f.jobs[i], ratchet.Waiting
		switch {
		case j.state == absent:
			at = ratchet.Absent
		case j.state == leased && j.by == p:
			at = ratchet.Leased
		case j.state == dead && m.broken != "a dead job is kept with a verdict that it is there":
			at = ratchet.Dead
		case j.state == done || j.state == dead || j.state == cancelled:
			at = ratchet.Ended
		}
		if !cut || m.broken != "a settlement is one commit: the row first" {
			m.end(w, f, i, v, uint8(s.Of), f.stream[k], at)
		}
	}
	if cut && m.broken == "a settlement is one commit: the ends first" {
		m.disown(w, p, k)
		return
	}
	m.release(w, p, k)
	f.rows[k] = s.After
	if s.Missing.Before > 0 {
		f.missing[k], f.of[k] = s.Missing, f.stream[k]
	}
	if s.Renew {
		f.stream[k] = w.begun
		w.begun++
	}
	w.processes[p].owner[k] = w.processes[p].owner[k].Settled(s)
}

// judge is a server's transaction on the jobs of a send. The job number refuse is refused, from the
// number later on there is no room. Either may be -1.
func (m *model) judge(w *world, p *packet, refuse, later int) []ratchet.Verdict {
	n := slices.Index(append(p.jobs[:], 0), 0)
	jobs := make([]ratchet.Job, n)
	for i := range jobs {
		jobs[i] = ratchet.Job{ID: ratchet.ID{p.jobs[i]}, Group: m.groups[p.jobs[i]-1]}
		if m.broken == "after a refusal the group is behind" {
			jobs[i].Group = ""
		}
	}
	at := -1
	enqueue := func(j ratchet.Job) (ratchet.Outcome, string) {
		at++
		i := int(j.ID[0]) - 1
		switch {
		case w.server.lookUp && w.server.jobs[i] > 0:
			return ratchet.Duplicate, ""
		case at == refuse:
			return ratchet.Refused, "no"
		case later >= 0 && at == later:
			return ratchet.Later, ""
		}
		m.enqueue(w, p, i)
		return ratchet.Enqueued, ""
	}
	var all []ratchet.Verdict
	if m.broken == "after later all is later" {
		for _, j := range jobs {
			all = append(all, ratchet.Judge([]ratchet.Job{j}, enqueue)...)
		}
	} else {
		all = ratchet.Judge(jobs, enqueue)
	}
	for _, v := range all {
		w.of(p.p).jobs[v.Job[0]-1].judged = v.Outcome
	}
	return all
}

// enqueue enqueues a job on the server. No job may be there twice, nor before an earlier one of its group
// that the device has not ended.
func (m *model) enqueue(w *world, p *packet, i int) {
	if w.server.jobs[i]++; w.server.jobs[i] > 1 {
		w.fail("job %d is on the server twice", i)
	}
	for e := range i {
		f := w.of(p.p)
		j := f.jobs[e]
		if m.groups[i] == "" || m.groups[e] != m.groups[i] || j.again || w.server.jobs[e] > 0 || w.putBack != [3]bool{} {
			continue
		}
		if (j.state == waiting || j.state == leased) && j.kept == 0 {
			w.fail("job %d is on the server before job %d of its group", i, e)
		}
	}
}
