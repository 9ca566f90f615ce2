package relay

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// A stop ends a request that hangs, whatever it is, and the jobs that it may have brought go back with
// nothing used up.
func TestForward_stop(t *testing.T) {
	for what, kind := range map[string]ratchet.Kind{"a check": ratchet.AskCheck, "an ask": ratchet.Ask, "a send": ratchet.Send} {
		for taken, takes := range map[string]bool{"that was taken": true, "that was lost": false} {
			t.Run(what+" "+taken, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				hangs, over := make(chan struct{}), make(chan struct{})
				var once sync.Once
				f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
					if h.Kind != kind {
						answer(w)
						return
					}
					if takes {
						answer(httptest.NewRecorder())
					}
					once.Do(func() { close(hangs) })
					<-over
				}
				d := newDevice(t, f)
				d.options.Streams = 1
				d.options.Client = &http.Client{} // it would wait for ever
				d.add(t, 50, none)
				w := errand.NewWorker(d.Queue, &errand.WorkerOptions{Queues: []string{"up"}, Grace: -1})
				d.forward(t, w)
				stop := d.start(t, w)
				<-hangs
				if err := w.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				stop()
				if n := d.count(t, errand.Ready); n != 50 {
					t.Errorf("%d jobs are ready, want 50", n)
				}
				d.wantUnspent(t)
				close(over)
				f.change(func() { f.around = nil })
				d.options.Client = nil
				d.run(t)
				until(t, "all are done", func() bool { return d.count(t, errand.Done) == 50 })
				f.wantOnce(t, 50)
			})
		}
	}
}

// What is to end soon is not begun again, wherever it waits.
func TestForward_dropStopped(t *testing.T) {
	d := newDevice(t, newFake(t))
	f := d.forward(t, d.worker())
	s := f.streams[0]
	parcelOf := func(stopped bool) *parcel {
		c := &call{errs: errand.BatchError{}, left: 1, done: make(chan struct{})}
		c.stopped.Store(stopped)
		return &parcel{Job: &errand.Job[errand.RawArgs]{}, call: c}
	}
	ended := func(p *parcel) bool {
		select {
		case <-p.call.done:
			return true
		default:
			return false
		}
	}
	waits, sent, goesOn := parcelOf(true), parcelOf(true), parcelOf(false)
	s.waiting, s.sent = []*parcel{waits, goesOn}, []*parcel{sent}
	ctx, done := s.context()
	defer done()
	if ctx.Err() == nil {
		t.Error("a request begins for a call that is to end")
	}
	s.dropStopped()
	if !ended(waits) || !ended(sent) || ended(goesOn) || len(s.waiting) != 1 || len(s.sent) != 0 {
		t.Errorf("ended: one that waits %t, one that was sent %t, another %t", ended(waits), ended(sent), ended(goesOn))
	}
}

// Two processes on a file work by turns: who comes asks first, and the other one's jobs are not sent again.
func TestForward_turns(t *testing.T) {
	f := newFake(t)
	f.around = lossy(5, 3)
	d := newDevice(t, f)
	other := *d
	other.open(t)
	devices := []*device{d, &other}
	for turn := range 6 {
		device := devices[turn%2]
		device.add(t, 50, none)
		stop := device.run(t)
		// Not all of them: the next one takes over in the middle.
		until(t, "some are done", func() bool { return d.count(t, errand.Done) >= 50*turn+20 })
		stop()
	}
	d.run(t)
	until(t, "all are done", func() bool { return d.count(t, errand.Done) == 300 })
	f.wantOnce(t, 300)
	d.wantUnspent(t)
}

// An answer counts only if the server has signed it as that to this request.
func TestForward_otherAnswers(t *testing.T) {
	for what, forge := range map[string]func(f *fake, h wire.Head, jobs []wire.Job, kept http.ResponseWriter, w http.ResponseWriter){
		"of an older request": func(_ *fake, _ wire.Head, _ []wire.Job, kept http.ResponseWriter, w http.ResponseWriter) {
			copyAnswer(kept.(*httptest.ResponseRecorder), w)
		},
		"signed by another key": func(_ *fake, h wire.Head, jobs []wire.Job, _ http.ResponseWriter, w http.ResponseWriter) {
			forged(h, jobs, testSeed, w)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var fault heal
			var kept *httptest.ResponseRecorder
			forgeries := 0
			f.between = func(h wire.Head, jobs []wire.Job, w http.ResponseWriter) {
				f.mu.Lock()
				first := kept == nil
				f.mu.Unlock()
				if !fault.ill() || h.Kind == ratchet.AskCheck || first && h.Kind != ratchet.Send {
					return
				}
				if first { // it is taken, and its answer kept
					r := httptest.NewRecorder()
					f.answer(r, h, jobs)
					f.mu.Lock()
					kept = r
					f.mu.Unlock()
					panic(http.ErrAbortHandler)
				}
				f.mu.Lock()
				forgeries++
				f.mu.Unlock()
				forge(f, h, jobs, kept, w)
			}
			d := newDevice(t, f)
			d.options.Streams = 1
			d.add(t, 30, none)
			d.run(t)
			until(t, "some are forged", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return forgeries >= 3 })
			if n := d.count(t, errand.Done); n != 0 {
				t.Errorf("%d jobs were ended by an answer that is none", n)
			}
			fault.cure()
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == 30 })
			f.wantOnce(t, 30)
			d.wantUnspent(t)
		})
	}
}

func copyAnswer(r *httptest.ResponseRecorder, w http.ResponseWriter) {
	for k, v := range r.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(r.Code)
	_, _ = w.Write(r.Body.Bytes())
}

// forged answers that all jobs were enqueued.
func forged(h wire.Head, jobs []wire.Job, seed string, w http.ResponseWriter) {
	a := wire.Answer{Status: http.StatusOK, Answer: ratchet.Answer{Request: h.ID, Status: ratchet.Taken, N: h.N + 1, T: ratchet.Token{1}, S: ratchet.Taking{N: h.N}}}
	for _, j := range jobs {
		a.Answer.S.Verdicts = append(a.Answer.S.Verdicts, ratchet.Verdict{Job: ratchet.ID(j.ID), Outcome: ratchet.Enqueued})
	}
	m := must(wire.SignAnswer(h, a, must(wire.ParseSigner(seed))))
	for k, v := range m.Header {
		w.Header()[k] = v
	}
	_, _ = w.Write(m.Body)
}
