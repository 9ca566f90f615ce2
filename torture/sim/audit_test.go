package sim

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

const sqlAll = `SELECT id, state, attempt, retry, crashes, snoozes, token, '' FROM errand_job
UNION ALL SELECT id, state, attempt, retry, crashes, snoozes, token, '' FROM errand_finished
UNION ALL SELECT id, 6, attempt, retry, crashes, snoozes, token, reason FROM errand_dead`

var states = []storage.State{"", storage.Ready, storage.Ready, storage.Running, storage.Done, storage.Cancelled, storage.Dead}

// audit compares the file with the model. Nothing must be under way.
func (w *world) audit() {
	err := w.life.store.Store.Tx(context.Background(), func(in any) error {
		tx := in.(*sql.Tx)
		broken, err := sqlite.CheckInvariants(context.Background(), tx)
		if err != nil {
			return err
		}
		for _, b := range broken {
			w.blame("the file has %s", b.Text)
		}
		rows, err := tx.Query(sqlAll)
		if err != nil {
			return err
		}
		defer rows.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		met := map[int64]bool{}
		for rows.Next() {
			var key, token int64
			var state int
			var c storage.Counters
			var reason storage.Reason
			if err := rows.Scan(&key, &state, &c.Attempt, &c.Retry, &c.Crashes, &c.Snoozes, &token, &reason); err != nil {
				return err
			}
			if met[key] {
				w.fault("job %d is in two states", key)
			}
			met[key] = true
			w.found(key, token, states[state], c, reason)
		}
		for _, j := range w.byBirth {
			if p := w.place(j); !met[j.id.Key()] && !p.mayBeGone && !p.mustBe {
				w.fault("job %d is lost: it must be %v", j.id.Key(), p.states)
			}
		}
		return rows.Err()
	})
	if err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
	}
}

func (w *world) found(key, token int64, state storage.State, c storage.Counters, reason storage.Reason) {
	j := w.jobs[key]
	if j == nil {
		w.fault("job %d is there, and nobody has enqueued it", key)
		return
	}
	p := w.place(j)
	switch {
	case p.mustBe:
		w.fault("job %d is %s, and was deleted", key, state)
	case !p.is(state):
		w.fault("job %d is %s, want %v", key, state, p.states)
	case token != p.token:
		w.fault("job %d has token %d, want %d", key, token, p.token)
	case len(p.states) > 1: // then its counters are as uncertain
	case state == storage.Cancelled:
	case c != p.Counters || state == storage.Dead && reason != p.reason:
		w.fault("job %d is %s with %+v %s, want %+v %s", key, state, c, reason, p.Counters, p.reason)
	}
}

// inspect looks through the API at what is there. Nothing must be under way.
func (w *world) inspect() {
	synctest.Wait()
	w.settle()
	ctx, q := context.Background(), w.life.queue
	want, unsure := map[storage.State]int64{}, false
	w.mu.Lock()
	var dead []*job
	for _, j := range w.byBirth {
		p := w.place(j)
		unsure = unsure || len(p.states) > 1 || p.mayBeGone && !p.mustBe
		if p.mustBe {
			continue
		}
		want[p.states[0]]++
		if p.states[0] == storage.Dead && len(p.states) == 1 && !p.mayBeGone {
			dead = append(dead, j)
		}
	}
	w.mu.Unlock()
	counts, err := q.Counts(ctx)
	if err != nil {
		w.blame("Counts: %v", err)
	}
	got := map[storage.State]int64{}
	for _, c := range counts {
		if c.State == storage.Scheduled {
			c.State = storage.Ready
		}
		got[c.State] += c.N
	}
	if !unsure && fmt.Sprint(got) != fmt.Sprint(want) {
		w.blame("the counts are %v, want %v", got, want)
	}
	for _, j := range dead {
		w.letter(ctx, q, j)
	}
	page, err := q.DeadLetters().List(ctx, errand.JobFilter{}, &errand.ListOptions{Limit: 1000})
	if err != nil || len(page.Jobs) < len(dead) || !unsure && len(page.Jobs) > len(dead) {
		w.blame("%d dead letters are listed, want %d: %v", len(page.Jobs), len(dead), err)
	}
}

// letter checks that a dead letter has all that is needed to understand it.
func (w *world) letter(ctx context.Context, q *errand.Queue, j *job) {
	info, err := q.DeadLetters().Get(ctx, j.id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.fault("dead letter %d: %v", j.id.Key(), err)
		return
	}
	p := w.place(j)
	var headers map[string]string
	if j.Headers != nil {
		_ = json.Unmarshal(j.Headers, &headers)
	}
	c := storage.Counters{Attempt: info.Attempt, Retry: info.Retry, Crashes: info.Crashes, Snoozes: info.Snoozes}
	if string(info.Args) != string(j.Args) || fmt.Sprint(info.Headers) != fmt.Sprint(headers) || info.Reason != p.reason ||
		info.Error == "" || info.Policy == nil || c != p.Counters || len(info.History) != min(p.failures, storage.HistoryLimit) ||
		info.Queue != j.Queue || info.Kind != j.Kind || !strings.HasSuffix(j.Unique, info.Unique) || info.EndedAt.IsZero() {
		w.fault("dead letter %d is %+v, want %+v with %d failures", j.id.Key(), info, j.NewJob, p.failures)
	}
}

const (
	// patience is how long jobs may take to come to an end in a friendly world:
	// those with a date up to an hour, and a clock that was wrong ten minutes.
	patience = 3 * time.Hour
	calls    = time.Minute
)

// drain makes the world friendly, and waits until all jobs have ended.
func (w *world) drain() {
	w.say("from now on the world is friendly")
	l := w.life
	w.mu.Lock()
	l.trouble = trouble{}
	w.mu.Unlock()
	synctest.Wait()
	w.set(0)
	w.friendly.Store(true)
	close(w.calm)
	ok := w.stop()
	l.doings.Wait()
	if !ok || l.broken.Load() {
		w.crash("the process ends", false)
		l = w.life
	}
	ctx := context.Background()
	for _, queue := range []string{"default", "bulk"} {
		if err := l.queue.Resume(ctx, queue); err != nil {
			w.blame("Resume: %v", err)
		}
	}
	if _, err := l.queue.Schedules().Keep(ctx); err != nil {
		w.blame("Keep: %v", err)
	}
	w.work(true)
	live := w.live()
	for began := time.Now(); len(live) > 0 && time.Since(began) < patience && !w.failed(); live = w.live() {
		time.Sleep(calls)
		synctest.Wait()
		w.settle()
	}
	if w.failed() {
		return
	}
	if len(live) > 0 {
		w.blame("jobs %v have not ended after %v", live, patience)
		return
	}
	if !w.stop() {
		w.blame("the last worker has not ended as it should")
	}
	w.settle()
	w.inspect()
	w.audit()
}

// live returns the jobs that have not ended, for all that is known.
func (w *world) live() (keys []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.byBirth {
		if p := w.place(j); p.live() && !slices.Contains(p.states, storage.Dead) {
			keys = append(keys, j.id.Key())
		}
	}
	return keys
}
