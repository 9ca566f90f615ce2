package relay

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// Once the server has refused a job, none of its group goes on before somebody has looked at it, also none
// that was not sent with it.
func TestForward_order(t *testing.T) {
	lost := func(answer func(http.ResponseWriter)) { answer(httptest.NewRecorder()); panic(http.ErrAbortHandler) }
	for what, c := range map[string]struct {
		// first is what becomes of the first send.
		first   func(w http.ResponseWriter, answer func(http.ResponseWriter))
		sent    int // jobs of the first send; the others come later
		prepare func(t *testing.T, d *device, third errand.ID)
	}{
		"sent by halves": {func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}, 10, nil},
		"its answer lost, and a stop": {func(_ http.ResponseWriter, answer func(http.ResponseWriter)) { lost(answer) }, 5, nil},
		"a stop before it was dead": {nil, 10, func(t *testing.T, d *device, third errand.ID) {
			topics := must(door.Open[errand.NewJob](d.Queue))
			doc := docOf(keptDoc{Outcome: ratchet.Refused, Reason: "no", Queue: "up"})
			must(topics.PutEntries(t.Context(), []storage.Entry{{Class: keptClass, Name: third.String(), Doc: doc}}))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFake(t)
			refuse, met := true, make(chan struct{})
			number := func(j wire.Job) int {
				var r reading
				_ = json.Unmarshal(j.Args, &r)
				return r.N
			}
			f.judge = func(j wire.Job) (ratchet.Outcome, string) {
				if refuse && number(j) == 3 {
					return ratchet.Refused, "no"
				}
				return ratchet.Enqueued, ""
			}
			var once sync.Once
			f.around = func(h wire.Head, w http.ResponseWriter, answer func(http.ResponseWriter)) {
				do := answer
				if h.Kind == ratchet.Send && c.first != nil {
					once.Do(func() {
						do = func(w http.ResponseWriter) { defer close(met); c.first(w, answer) }
					})
				}
				do(w)
			}
			d := newDevice(t, f)
			add := func(from, to int) (all []errand.NewJob) {
				for i := from; i < to; i++ {
					all = append(all, errand.NewJob{Args: reading{i}, Options: &errand.JobOptions{Queue: "up", Group: "g"}})
				}
				return all
			}
			made := must(d.EnqueueMany(t.Context(), add(0, c.sent)))
			if c.prepare != nil {
				c.prepare(t, d, made[3].ID)
			}
			stop := d.run(t)
			if c.sent < 10 {
				<-met
				stop()
				must(d.EnqueueMany(t.Context(), add(c.sent, 10)))
				d.run(t)
			}
			until(t, "the job is dead", func() bool { return d.count(t, errand.Dead) == 1 && d.count(t, errand.Blocked) == 6 })
			f.wantOnce(t, 3)
			f.mu.Lock()
			refuse = false
			f.mu.Unlock()
			must(d.DeadLetters().Redrive(t.Context(), errand.JobFilter{All: true}, nil))
			until(t, "all are done", func() bool { return d.count(t, errand.Done) == 10 })
			f.wantOnce(t, 10)
			for i, j := range f.taken() {
				if number(j) != i {
					t.Errorf("job %d came in place %d", number(j), i)
				}
			}
		})
	}
}
