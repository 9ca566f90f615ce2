package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const (
	// settleAfter is how long after its last jobs a stream settles them on the server.
	settleAfter = time.Minute
	// alike is how many failures of one kind in a row make the next request smaller.
	alike = 3
	// alikeAlone is how often a job must get no answer alone before it is kept back.
	alikeAlone = 10
	// firstBytes is how many bytes a first request may have, and leastBytes what one may always
	// have. A request that took less than fast lets the next have twice as many, one that took
	// longer than slow half of them.
	firstBytes, leastBytes = 128 << 10, 4 << 10
	fast, slow             = 5 * time.Second, 20 * time.Second
	// setAside is for how long a job that does not get through alone is kept back.
	setAside  = time.Minute
	mostAside = time.Hour
	// patience is for how long jobs stay in hand behind a gate that closes before the server has taken any. To give back
	// thousands and lease them anew takes a device more than what it sends in that time.
	patience = 10 * time.Second
	// hears is after what time a worker has heard that a gate has closed.
	hears = 20 * time.Millisecond
	// heldEvery is how often a stream that is held asks.
	heldEvery = time.Minute
)

// stream sends the jobs that are its own, one request at a time. As many jobs go with a request as wait
// when it begins.
type stream struct {
	of    *forwarder
	index int

	mu      sync.Mutex
	waiting []*parcel
	running bool // a goroutine works
	cancel  context.CancelFunc
	hurries chan struct{} // has room for one: the jobs in hand are to go back where they would wait for the gate

	// work guards what follows: who has sent to it makes requests. It is no mutex, as it is held for
	// as long as a request takes.
	work  chan struct{} // has room for one
	row   outRow
	owner ratchet.Owner
	sent  []*parcel // of the send under way, or of one that was not answered
	most  int       // jobs of a request
	room  int       // bytes of these
	misses
	asks int    // forwarder.asks when it last asked
	why  string // it was held last; empty: it was not, or that is not known
	open bool   // the server has verdicts on jobs in S
	idle *time.Timer
	// waited: jobs in hand have waited behind a closed gate, and may have been cancelled meanwhile.
	waited bool
}

// misses is what a stream knows of requests that were in vain.
type misses struct {
	lost     int    // asks without an answer in a row
	failed   string // how the last sends have failed
	failures int    // how often in a row
	// giveBackAt is when the jobs in hand go back if the gate is closed. If zero, it has not been closed since the
	// server has taken any.
	giveBackAt time.Time
}

// add has parcels wait for the stream.
func (s *stream) add(parcels []*parcel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, parcels...)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// run sends until nothing waits.
func (s *stream) run() {
	for {
		s.work <- struct{}{}
		if s.idle != nil {
			s.idle.Stop()
		}
		if err := s.drain(); err != nil {
			if s.waits(err) {
				continue
			}
			s.work <- struct{}{}
			time.Sleep(hears) // else the jobs would come again at once
			s.turnBack()
			s.giveBackAt = time.Time{}
		}
		if s.open {
			s.idle = time.AfterFunc(settleAfter, s.settleIdle)
		}
		s.release()
		s.of.sweepSometimes()
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

func (s *stream) release() { <-s.work }

// waits releases the stream, whose drain could not go on because of err, and reports whether it can after a short
// wait.
func (s *stream) waits(err error) bool {
	if s.giveBackAt.IsZero() {
		s.giveBackAt = time.Now().Add(cmp.Or(s.of.options.patience, patience))
	}
	s.waited = true
	owned, left := s.row.revision != 0, time.Until(s.giveBackAt)
	s.release()
	return owned && !errors.Is(err, context.Canceled) && s.of.away.opensWithin(left, s.hurries)
}

// drain makes requests until nothing waits, or one has closed the gate.
func (s *stream) drain() error {
	for s.pending() {
		if open, reason := s.of.away.is(); !open {
			return errors.New(reason)
		}
		if err := s.step(); err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	return nil
}

func (s *stream) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0 || len(s.sent) > 0
}

// step makes one step of the protocol. After an error, the gate is closed.
func (s *stream) step() error {
	if s.dropStopped(); !s.pending() {
		return nil
	}
	switch s.owner.Phase {
	case ratchet.Ready:
		if s.asks != s.of.asked() {
			s.owner = s.owner.Lost()
			return nil
		}
		return s.send()
	default:
		return s.ask()
	}
}

// ask becomes the owner of the stream, and asks what became of the send before.
func (s *stream) ask() error {
	ctx, done := s.context()
	defer done()
	f := s.of
	s.asks = f.asked()
	if err := s.own(ctx); err != nil {
		return s.troubled(err)
	}
	owner, r := s.owner.AskCheck(newID())
	a, err := f.exchange(ctx, s.row.ID, r, nil)
	if err := s.answered(a, err); err != nil {
		return err
	}
	if s.owner, _ = owner.Receive(a.Answer); s.owner.Phase != ratchet.MustConfirm {
		return f.away.shut("the server has not answered a check as one", 0)
	}
	mine, err := f.rows.owns(context.WithoutCancel(ctx), f.options.Queue, s.index, s.row)
	if err == nil && !mine {
		err = errand.ErrStale
	}
	if err != nil {
		return s.troubled(err)
	}
	s.owner, r = s.owner.Ask(newID())
	a, err = f.exchange(ctx, s.row.ID, r, nil)
	if err := s.answered(a, err); err != nil {
		return err
	}
	return s.receive(ctx, a)
}

// own becomes the owner of the stream, unless it is.
func (s *stream) own(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	if s.row.revision != 0 {
		s.owner = s.owner.Lost()
		return nil
	}
	f := s.of
	if s.row, err = f.rows.take(ctx, f.options.Queue, s.index); err != nil {
		return err
	}
	s.owner = ratchet.Owner{Row: s.row.Device}
	f.keeping.Lock()
	defer f.keeping.Unlock()
	kept, err := f.rows.kept(ctx)
	if err != nil {
		s.row = outRow{}
		return err
	}
	f.mu.Lock()
	f.kept = kept
	f.mu.Unlock()
	return nil
}

// send sends what waits, or nothing, which settles the send before.
func (s *stream) send() error {
	ctx, done := s.context()
	defer done()
	if err := s.take(ctx); err != nil {
		return s.troubled(err)
	}
	if len(s.sent) == 0 {
		return nil
	}
	return s.sendNow(ctx)
}

func (s *stream) sendNow(ctx context.Context) error {
	jobs := make([]wire.Job, len(s.sent))
	for i, p := range s.sent {
		jobs[i] = p.job
	}
	owner, r := s.owner.Send(newID())
	began := time.Now()
	a, err := s.of.exchange(ctx, s.row.ID, r, jobs)
	took := time.Since(began)
	s.owner = owner
	if err == nil && a.Status == http.StatusOK {
		if err := s.receive(ctx, a); err != nil {
			return err
		}
		return s.full(a, took)
	}
	s.owner = owner.Lost()
	return s.missed(a, err)
}

// take takes the first jobs that wait, up to as many and as large as a request may be. Jobs whose
// verdicts were kept end without being sent, and so do those for which it is too late.
func (s *stream) take(ctx context.Context) error {
	s.mu.Lock()
	s.waiting = onlyLast(s.waiting)
	s.mu.Unlock()
	if err := s.dropCancelled(ctx); err != nil {
		return err
	}
	now := s.of.queue.Clock().Now
	for left := s.room; len(s.sent) < s.most; {
		p := s.next(left)
		if p == nil {
			return nil
		}
		sends, err := s.applyKept(ctx, p)
		if err != nil {
			s.putBack(append(s.sent, p))
			s.sent = nil
			return err
		}
		if !sends {
			continue
		}
		if err := p.window(now); err != nil {
			s.fail(p, err)
			continue
		}
		s.sent, left = append(s.sent, p), left-p.bytes
	}
	return nil
}

// dropCancelled gives back the jobs that were cancelled while they waited behind a closed gate.
func (s *stream) dropCancelled(ctx context.Context) error {
	if !s.waited {
		return nil
	}
	s.mu.Lock()
	waiting := slices.Clone(s.waiting)
	s.mu.Unlock()
	cancelled := map[errand.ID]bool{}
	for part := range slices.Chunk(waiting, wire.MaxJobs) {
		jobs := make([]*errand.Job[errand.RawArgs], len(part))
		for i, p := range part {
			jobs[i] = p.Job
		}
		infos, err := s.of.infos(ctx, jobs)
		if err != nil {
			return err
		}
		for id, info := range infos {
			cancelled[id] = info.Cancelling
		}
	}
	s.waited = false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(p *parcel) bool {
		if cancelled[p.ID] {
			p.end(door.ErrUntouched)
		}
		return cancelled[p.ID]
	})
	return nil
}

// next returns the first job that waits, or nil if there is none or it has more bytes than are left. A first
// job may have more.
func (s *stream) next(left int) *parcel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || len(s.sent) > 0 && s.waiting[0].bytes > left {
		return nil
	}
	p := s.waiting[0]
	s.waiting = s.waiting[1:]
	return p
}

// onlyLast returns parcels of different jobs. A job that has lost its lease may have come again: then
// the first one has no say any more.
func onlyLast(all []*parcel) []*parcel {
	last := make(map[errand.ID]*parcel, len(all))
	for _, p := range all {
		last[p.ID] = p
	}
	return slices.DeleteFunc(all, func(p *parcel) bool {
		if last[p.ID] == p {
			return false
		}
		p.end(door.ErrUntouched)
		return true
	})
}

// putBack has parcels wait before all others.
func (s *stream) putBack(parcels []*parcel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(slices.Clone(parcels), s.waiting...)
}

// receive takes an answer of the protocol, and commits what follows from it.
func (s *stream) receive(ctx context.Context, a wire.Answer) error {
	owner, x := s.owner.Receive(a.Answer)
	s.owner = owner
	if owner.Phase != ratchet.Settling {
		return nil // stale: it asks again
	}
	if err := s.settle(ctx, x); err != nil {
		s.putBack(s.sent)
		s.sent = nil
		return s.troubled(err)
	}
	s.owner = owner.Settled(x)
	if s.open = len(a.Answer.S.Verdicts) > 0; len(x.Verdicts) > 0 {
		s.misses = misses{} // also of a send of which only the answer was lost
	}
	s.putBack(s.sent) // what is not in S was not taken
	s.sent = nil
	f := s.of
	switch {
	case x.After.Held:
		switch {
		case x.Missing.Before > 0:
			s.why = "the server was put back to an older copy"
		case a.Answer.Status == ratchet.Forked:
			s.why = "this device was put back to an older copy, or another has its key"
		}
		f.askAll()
		go f.askEach()
		return f.away.shut(s.whyHeld(), cmp.Or(f.options.backoff, heldEvery))
	case x.Renew:
		return nil
	}
	if s.failed == "" {
		f.away.reached()
	}
	f.first.Do(func() { go f.askEach() })
	return nil
}

// full closes the gate for a while if the server had no room for some jobs.
func (s *stream) full(a wire.Answer, took time.Duration) error {
	s.failed, s.failures = "", 0
	if behind := countOf(a, ratchet.Behind); behind > 0 { // more would be sent in vain
		s.most = min(max(2*(len(a.Answer.S.Verdicts)-behind), 1), wire.MaxJobs)
	} else {
		s.larger(took)
	}
	s.of.away.reached()
	if countOf(a, ratchet.Later) == 0 {
		return nil
	}
	return s.of.away.shut(noRoom, max(time.Duration(a.RetryAfter)*time.Second, fullWait))
}

// While a server has noRoom it is asked after fullWait.
const (
	noRoom   = "the server has no room for more jobs"
	fullWait = 5 * time.Second
)

// countOf returns how many jobs of a send had an outcome.
func countOf(a wire.Answer, o ratchet.Outcome) (n int) {
	for _, v := range a.Answer.S.Verdicts {
		if v.Outcome == o {
			n++
		}
	}
	return n
}

// answered returns an error if an answer to an ask is none, and closes the gate.
func (s *stream) answered(a wire.Answer, err error) error {
	if err == nil && a.Status == http.StatusOK {
		s.lost = 0
		return nil
	}
	s.owner = s.owner.Lost()
	if s.lost++; s.lost < alike && err != nil && statusOf(a, err) == 0 && !errors.Is(err, context.Canceled) {
		return errAgain
	}
	s.lost = 0
	return s.of.closeFor(a, err)
}

// errAgain is of a request that was lost alone, as far as is known: the next may get through.
var errAgain = errors.New("errand: relay: no answer")

// missed is for a send that was not answered, or by a failure. It may have been taken all the same, so the
// stream asks.
func (s *stream) missed(a wire.Answer, err error) error {
	how := failureOf(a, err)
	if how != s.failed {
		s.failed, s.failures = how, 0
	}
	s.failures++
	switch {
	case err == nil && (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable ||
		a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden):
		s.failed, s.failures = "", 0
		return s.of.closeFor(a, nil)
	case len(s.sent) == 1 && how == noAnswer && s.failures < alikeAlone:
	case len(s.sent) > 1 && how == noAnswer:
		s.failures = 0
		s.smaller()
	case statusOf(a, err) == http.StatusRequestEntityTooLarge || s.failures >= alike:
		s.failures = 0
		if len(s.sent) == 1 {
			return s.aside(a, err)
		}
		s.smaller()
	}
	return nil
}

// smaller makes the next request half as large as the last.
func (s *stream) smaller() {
	bytes := 0
	for _, p := range s.sent {
		bytes += p.bytes
	}
	s.most, s.room = max(len(s.sent)/2, 1), max(bytes/2, leastBytes)
}

// larger makes the next request larger if the last was fast, and smaller if it was slow: a link may be thin,
// and others share it.
func (s *stream) larger(took time.Duration) {
	s.most = min(2*s.most, wire.MaxJobs)
	switch {
	case took < fast:
		s.room = min(2*s.room, mostBytes)
	case took > slow:
		s.room = max(s.room/2, leastBytes)
	}
}

// aside keeps back a job that does not get through alone. If the server has said that it is to blame, it has
// failed.
func (s *stream) aside(a wire.Answer, err error) error {
	p := s.sent[0]
	s.sent = nil
	if err == nil && a.Status != http.StatusRequestTimeout {
		s.fail(p, fmt.Errorf("errand: relay: the server has answered with status %d: %s", a.Status, a.Error))
		return nil
	}
	if err == nil {
		err = errors.New("errand: relay: " + a.Error)
	}
	wait := min(setAside<<min(p.Snoozes, 6), mostAside)
	s.of.log.Warn("errand: relay: a job does not get through, and is kept back", "job", p.ID, "kind", p.Kind, "queue", p.Queue, "for_s", wait.Seconds(), "error", err)
	s.fail(p, errand.Snooze(wait, err))
	return s.of.away.shut("a job does not get through: "+err.Error(), 0)
}

// troubled closes the gate after an error of the queue's own file. What the stream knows of the file
// may be old, and is read again.
func (s *stream) troubled(err error) error {
	s.owner, s.row = ratchet.Owner{}, outRow{}
	if errors.Is(err, errand.ErrStale) { // it has its turn; to take the stream from it at once would stop both
		return s.of.away.shut("another process passes on the jobs of the queue", 0)
	}
	return s.of.away.shut("the file of the queue: "+err.Error(), 0)
}

// turnBack gives back all jobs in hand, with nothing used up. What became of a send under way is
// asked before the next.
func (s *stream) turnBack() {
	s.mu.Lock()
	all := append(s.sent, s.waiting...)
	s.sent, s.waiting = nil, nil
	s.mu.Unlock()
	for _, p := range all {
		p.end(door.ErrUntouched)
	}
}

// fail ends the way of a job that is not done.
func (s *stream) fail(p *parcel, err error) {
	p.end(err)
	s.turnBackBehind([]*parcel{p})
}

// turnBackBehind gives back the jobs in hand that are behind one of these in its group, which are not done:
// they come after it, or wait until somebody has looked at it.
func (s *stream) turnBackBehind(failed []*parcel) {
	first := map[string]int64{}
	for _, p := range failed {
		if at, ok := first[p.Group]; p.Group != "" && (!ok || p.ID.Key() < at) {
			first[p.Group] = p.ID.Key()
		}
	}
	behind := func(p *parcel) bool {
		at, ok := first[p.Group]
		if ok = ok && p.ID.Key() > at; ok {
			p.end(door.ErrUntouched)
		}
		return ok
	}
	s.sent = slices.DeleteFunc(s.sent, behind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, behind)
}

// interrupt gives back the jobs of a call that wait, and ends a request that has others of them.
func (s *stream) interrupt(c *call) {
	c.stopped.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(p *parcel) bool {
		if p.call == c {
			p.end(door.ErrUntouched)
		}
		return p.call == c
	})
	if s.cancel != nil {
		s.cancel()
	}
	s.hurry()
}

// hurry ends the wait of the stream for the gate, or that to come.
func (s *stream) hurry() {
	select {
	case s.hurries <- struct{}{}:
	default:
	}
}

// dropStopped gives back the jobs in hand of calls that have to end. Some that were put back wait.
func (s *stream) dropStopped() {
	stopped := func(p *parcel) bool {
		if !p.call.stopped.Load() {
			return false
		}
		p.end(door.ErrUntouched)
		return true
	}
	s.sent = slices.DeleteFunc(s.sent, stopped)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, stopped)
}

// context returns the context of a step. An interruption cancels it, also one that was just before.
func (s *stream) context() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	if slices.ContainsFunc(s.sent, func(p *parcel) bool { return p.call.stopped.Load() }) {
		cancel()
	}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancel = nil
		cancel()
	}
}

// settleIdle sends nothing, so that the server forgets the verdicts on jobs that have ended here.
func (s *stream) settleIdle() {
	s.work <- struct{}{}
	defer s.release()
	if open, _ := s.of.away.is(); !open || !s.open || s.owner.Phase != ratchet.Ready || s.pending() {
		return
	}
	s.open = false
	// The worker may have stopped, and the queue be closed.
	if mine, err := s.of.rows.owns(context.Background(), s.of.options.Queue, s.index, s.row); err != nil || !mine {
		return
	}
	ctx, done := s.context()
	defer done()
	_ = s.sendNow(ctx) // else the next ask does
}

// whyHeld says what ends the hold of the stream, and why it is held, as far as is known.
func (s *stream) whyHeld() string {
	why := cmp.Or(s.why, "this device or the server was put back to an older copy, or another device has its key")
	return fmt.Sprintf("stream %d is held until errand devices accept on the server: %s", s.index, why)
}

func (s *stream) isHeld() bool {
	s.work <- struct{}{}
	defer s.release()
	return s.row.Held
}

// askIfDue asks, unless the stream has since all were to ask.
func (s *stream) askIfDue() {
	s.work <- struct{}{}
	defer s.release()
	if s.asks != s.of.asked() || s.owner.Phase == ratchet.MustAsk {
		_ = s.ask() // after an error the gate is closed
	}
}

// probe makes a request that changes no job, and returns nil if the server can be sent jobs.
func (s *stream) probe(ctx context.Context) error {
	s.work <- struct{}{}
	defer s.release()
	if s.owner.Phase == ratchet.Ready && s.asks == s.of.asked() {
		_, r := s.owner.AskCheck(newID())
		a, err := s.of.exchange(ctx, s.row.ID, r, nil)
		return s.answered(a, err)
	}
	return s.ask()
}
