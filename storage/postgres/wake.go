package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// A notice goes to the server only if there is another instance that has a process, and the statement returns
// whether there is: for a process that is alone it would be a transaction in vain.
const sqlNotice = `SELECT count(*) > 0 FROM (SELECT pg_notify($1, $2) FROM errand_instance WHERE instance <> $3 AND NOT closed AND seen_at > 0 LIMIT 1) n`

// wakeTimes are how long what wakes workers waits.
type wakeTimes struct {
	look   time.Duration // a worker looks so often if nobody tells it of anything
	notice time.Duration // at least, between two notices
	ping   time.Duration // a session that hears nothing for so long is asked
	answer time.Duration // and replaced, unless it answers in this time
}

var usualTimes = wakeTimes{look: time.Second, notice: 10 * time.Millisecond, ping: 15 * time.Second, answer: 5 * time.Second}

// news is what a commit has for workers. The zero value is nothing.
type news struct {
	ready  []int32 // lanes of jobs that are ready
	next   int64   // when the first scheduled job is due, 0: there is none
	cancel bool    // a job that runs was asked to stop
	bulk   bool    // a job has come to the queue of bulk jobs
}

// add adds that a job of a lane waits.
func (n *news) add(lane int32, s storage.State, due int64) {
	switch {
	case s == storage.Ready && !slices.Contains(n.ready, lane):
		n.ready = append(n.ready, lane)
	case s == storage.Scheduled && (n.next == 0 || due < n.next):
		n.next = due
	}
}

// merge adds other news.
func (n *news) merge(o news) {
	for _, lane := range o.ready {
		n.add(lane, storage.Ready, 0)
	}
	if o.next != 0 {
		n.add(0, storage.Scheduled, o.next)
	}
	n.cancel, n.bulk = n.cancel || o.cancel, n.bulk || o.bulk
}

// without takes out lanes of which no ready job is left.
func (n *news) without(lanes []int32) {
	n.ready = slices.DeleteFunc(n.ready, func(lane int32) bool { return slices.Contains(lanes, lane) })
}

func (n *news) none() bool { return len(n.ready) == 0 && n.next == 0 && !n.cancel && !n.bulk }

func (s *Store) isBulk(lane int32) bool { return s.lanes.name(lane).Queue == storage.BulkQueue }

// newsOf returns the news of what was decided.
func (s *Store) newsOf(rows []*rules.Row) (n news) {
	for _, r := range rows {
		n.add(int32(r.Is.Lane), r.Is.State, r.Is.Due)
		n.cancel = n.cancel || r.Is.Cancelling && !r.Was.Cancelling
		n.bulk = n.bulk || (r.Was.State == "" || r.Was.State == storage.Dead) && s.isBulk(int32(r.Is.Lane))
	}
	return n
}

// event returns the news for workers. One that is about Cancel alone says that they should look too.
func (n *news) event() (e storage.Event) {
	e.Cancel, e.Schedules = n.cancel, n.bulk
	if len(n.ready) == 0 && n.next != 0 {
		e.Due = fromMicros(n.next)
	}
	return e
}

// payload returns an event as a notice has it: who has sent it, what Due is, and whether Cancel and
// Schedules are true.
func payload(store int32, e storage.Event) string {
	due := int64(0)
	if !e.Due.IsZero() {
		due = micros(e.Due)
	}
	return fmt.Sprintf("%d %d %t %t", store, due, e.Cancel, e.Schedules)
}

// readNotice reads a payload. What it does not understand, of a later version, is that jobs wait.
func readNotice(text string) (store int32, e storage.Event) {
	var due int64
	if _, err := fmt.Sscanf(text, "%d %d %t %t", &store, &due, &e.Cancel, &e.Schedules); err == nil && due != 0 {
		e.Due = fromMicros(due)
	}
	return store, e
}

// wake tells workers of commits: those of this Store at once, and those of others by a notice after the
// commit. A notice is a hint, and may be lost. So workers are told once a second besides to look.
type wake struct {
	s       *Store
	times   wakeTimes
	session *pgx.ConnConfig // of the connection that hears notices
	ctx     context.Context // ends with the Store
	end     context.CancelFunc
	running sync.WaitGroup

	ears struct {
		sync.RWMutex
		last int
		all  map[int]func(storage.Event)
	}
	mu      sync.Mutex
	pending news
	sends   bool          // a goroutine sends notices
	kick    chan struct{} // there are pending ones
}

func (w *wake) init(s *Store, listen *pgx.ConnConfig) {
	w.s, w.times, w.session, w.kick = s, usualTimes, listen, make(chan struct{}, 1)
	w.ctx, w.end = context.WithCancel(context.Background())
	w.ears.all = map[int]func(storage.Event){}
}

// Notify implements [storage.Notifier]. Of what other processes commit, f may not be told, or
// later: it is called once a second at least.
func (s *Store) Notify(f func(storage.Event)) (cancel func()) {
	w := &s.wake
	w.ears.Lock()
	defer w.ears.Unlock()
	if w.ears.last++; w.ears.last == 1 {
		w.run(w.tick)
		w.run(w.listen)
	}
	ear := w.ears.last
	w.ears.all[ear] = f
	return func() {
		w.ears.Lock()
		defer w.ears.Unlock()
		delete(w.ears.all, ear)
	}
}

// run runs f until the Store is closed, unless it is.
func (w *wake) run(f func()) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.s.closed {
		w.running.Go(f)
	}
}

// tell tells the workers of this process.
func (w *wake) tell(e storage.Event) {
	w.ears.RLock()
	defer w.ears.RUnlock()
	for _, f := range w.ears.all {
		f(e)
	}
}

// committed tells of what this Store has committed.
func (w *wake) committed(n news) {
	if n.none() {
		return
	}
	w.tell(n.event())
	w.mu.Lock()
	w.pending.merge(n)
	first := !w.sends
	w.sends = true
	w.mu.Unlock()
	if first {
		w.run(w.send)
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// tick has workers look, whatever they are told.
func (w *wake) tick() {
	t := time.NewTicker(w.times.look)
	defer t.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-t.C:
			w.tell(storage.Event{})
		}
	}
}

// send sends notices. If there is nobody to hear them, it asks again after as long as a worker takes to
// look by itself.
func (w *wake) send() {
	for {
		select {
		case <-w.kick:
		case <-w.ctx.Done():
			return
		}
		pause := w.times.notice
		if !w.notice() {
			pause = w.times.look
		}
		select {
		case <-time.After(pause):
		case <-w.ctx.Done():
			return
		}
	}
}

// notice sends what is pending. It reports whether somebody may have heard it.
func (w *wake) notice() (heard bool) {
	w.mu.Lock()
	n := w.pending
	w.pending = news{}
	w.mu.Unlock()
	if n.none() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), w.times.answer)
	defer cancel()
	err := w.s.pool.QueryRow(ctx, sqlNotice, w.channel(), payload(w.s.sent.store, n.event()), w.s.self.number()).Scan(&heard)
	return heard && err == nil
}

// channel is the one of the notices about the Store's tables.
func (w *wake) channel() string { return fmt.Sprintf("errand_%d", uint32(w.s.locks)) }

// listen hears notices of other Stores, on one session after the other. At the beginning of each workers
// look at what others may have sent before, which nobody has heard.
func (w *wake) listen() {
	for w.ctx.Err() == nil {
		_ = w.hear() // another session is next
		select {
		case <-time.After(w.times.look):
		case <-w.ctx.Done():
		}
	}
}

// hear hears notices on one session, until that is of no use.
func (w *wake) hear() error {
	c, err := w.open()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), w.times.answer)
		defer cancel()
		_ = c.Close(ctx)
	}()
	now, _ := w.s.StoreTime()                                  // Open has asked for it
	if err := w.s.self.register(w.ctx, w.s, now); err != nil { // others send only to instances
		return err
	}
	w.tell(storage.Event{Cancel: true, Schedules: true})
	for {
		ctx, cancel := context.WithTimeout(w.ctx, w.times.ping)
		notice, err := c.WaitForNotification(ctx)
		quiet := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			if store, e := readNotice(notice.Payload); store != w.s.sent.store {
				w.tell(e)
			}
			continue
		case !quiet || w.ctx.Err() != nil || c.IsClosed():
			return err
		}
		ctx, cancel = context.WithTimeout(w.ctx, w.times.answer)
		err = c.Ping(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
}

// open opens a session that hears notices.
func (w *wake) open() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.times.answer)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, w.session)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "LISTEN "+w.channel()); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return c, nil
}

// close ends all goroutines, and sends what they have left. Close has seen to it that no call is under way.
func (w *wake) close() {
	w.end()
	w.running.Wait()
	w.notice()
}
