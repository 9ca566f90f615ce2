package webhook

import (
	"log/slog"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// answerIn is how long Online is waited for. After it its last answer counts, and the log
// says so.
const answerIn = time.Second

// link is what the gate Online has said.
type link struct {
	mu     sync.Mutex
	asking *question // nil: none is under way
	open   bool      // the last answer
}

// question is one to Online. All deliveries that fail meanwhile wait for its answer.
type question struct {
	answered chan struct{} // closed when Online has returned
	late     chan struct{} // closed when nobody waits for that any more
}

// isOpen asks the gate, unless it is being asked. One that blocks holds up deliveries for
// a second, and no more until it has answered.
func (l *link) isOpen(gate errand.Gate, log *slog.Logger) bool {
	if gate == nil {
		return false
	}
	q := l.ask(gate, log)
	select {
	case <-q.answered:
	case <-q.late:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// ask returns the question that is under way, or a new one.
func (l *link) ask(gate errand.Gate, log *slog.Logger) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking == nil {
		q := &question{make(chan struct{}), make(chan struct{})}
		l.asking = q
		go l.answer(q, gate)
		go q.watch(l.open, log)
	}
	return l.asking
}

// answer has the gate answer a question.
func (l *link) answer(q *question, gate errand.Gate) {
	open := false // also if the gate panics, or ends this goroutine
	defer func() {
		_ = recover()
		l.mu.Lock()
		l.open, l.asking = open, nil
		l.mu.Unlock()
		close(q.answered)
	}()
	open, _, _ = gate.State()
}

// watch ends the wait for a gate that blocks, and logs that it does. No delivery waits for
// the logger.
func (q *question) watch(was bool, log *slog.Logger) {
	began := time.Now()
	timer := time.NewTimer(answerIn)
	defer timer.Stop()
	select {
	case <-q.answered:
		return
	case <-timer.C:
	}
	close(q.late)
	if was {
		log.Warn("errand: the gate Online has not answered for 1 s, and counts as open as it did before")
	} else {
		log.Warn("errand: the gate Online has not answered for 1 s, and counts as closed")
	}
	<-q.answered
	log.Info("errand: the gate Online answers again", "took_s", time.Since(began).Seconds())
}
