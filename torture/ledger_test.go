//go:build unix

package torture_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/errandq/errand/storage"
)

// ledger is what children have said, all of them together. Keys of jobs and
// tokens of leases are never used twice, so that no order between children
// needs to be known.
type ledger struct {
	mu    sync.Mutex
	tried map[int]string        // queues of jobs that somebody set out to enqueue, by number
	txs   map[int]bool          // of those in a transaction with a row of the application
	ids   map[int]storage.ID    // of those that were acknowledged
	ticks map[string]storage.ID // jobs of ticks, by schedule and time
	jobs  map[int64]*entry      // by key
	over  int64                 // finished jobs kept until then may be gone
	fault []string              // what cannot be, whatever is in the database
}

// entry is what was said of one job.
type entry struct {
	key      int64
	leases   map[int64]*leaseEntry // by token
	runs     []run
	redrives asked
	cancels  asked
	until    int64 // how long it is kept if it was cancelled
	purges   asked
}

// asked counts what was asked for and what was acknowledged.
type asked struct{ begun, acked int }

type leaseEntry struct {
	token    int64
	attempt  int
	queue    string
	holder   *child
	intents  []intent // what it was to end with
	acked    bool     // it has, with the last of intents
	lost     bool     // the holder was told that it is not its own any more
	fate     storage.Fate
	returned bool // one of a reclaimer, who runs nothing
}

// intent is how a lease was to end.
type intent struct {
	outcome storage.Outcome
	until   int64 // how long it is kept if it is finished; 0: not at all
}

// run is a call of the handler.
type run struct {
	attempt int
	by      *child
}

func newLedger() *ledger {
	return &ledger{tried: map[int]string{}, txs: map[int]bool{}, ids: map[int]storage.ID{}, ticks: map[string]storage.ID{}, jobs: map[int64]*entry{}}
}

// read takes what a child says until it says no more. Lines that are not for
// the ledger are given to other.
func (l *ledger) read(c *child, r io.Reader, other func(line string)) error {
	lines := bufio.NewScanner(r)
	lines.Split(func(b []byte, _ bool) (int, []byte, error) {
		return bufio.ScanLines(b, false) // not the last one of a child that was killed in the middle of it
	})
	for lines.Scan() {
		ours, err := l.note(c, lines.Text())
		if err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if !ours {
			other(lines.Text())
		}
	}
	return lines.Err()
}

// note takes one line; false if it is not for the ledger.
func (l *ledger) note(c *child, line string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	verb, rest, _ := strings.Cut(line, " ")
	var key, token int64
	scan := func(dest ...any) error {
		_, err := fmt.Sscan(rest, dest...)
		return err
	}
	switch verb {
	case "try":
		var n int
		var queue string
		err := scan(&n, &queue)
		l.tried[n] = queue
		return true, err
	case "tx":
		var n int
		err := scan(&n)
		l.txs[n] = true
		return true, err
	case "enqueued":
		var n int
		var text string
		if err := scan(&n, &text); err != nil {
			return true, err
		}
		var id storage.ID
		err := id.UnmarshalText([]byte(text))
		l.ids[n] = id
		l.entry(id.Key())
		return true, err
	case "ticked":
		var name, text string
		var at int64
		if err := scan(&name, &at, &text); err != nil {
			return true, err
		}
		var id storage.ID
		err := id.UnmarshalText([]byte(text))
		tick := fmt.Sprint(name, " ", at)
		if _, ok := l.ticks[tick]; ok {
			l.fault = append(l.fault, fmt.Sprintf("tick %s was fired twice", tick))
		}
		l.ticks[tick] = id
		return true, err
	case "leased":
		var attempt int
		var queue string
		err := scan(&key, &token, &attempt, &queue)
		e := l.entry(key)
		if old := e.leases[token]; old != nil {
			l.fault = append(l.fault, fmt.Sprintf("token %d of job %d was handed out twice", token, key))
		}
		e.leases[token] = &leaseEntry{token: token, attempt: attempt, queue: queue, holder: c}
		return true, err
	case "reclaimed":
		var fate int
		err := scan(&key, &token, &fate)
		s := l.entry(key).lease(token)
		s.fate, s.returned = storage.Fate(fate), true
		return true, err
	case "ending":
		var outcome int
		var until int64
		err := scan(&key, &token, &outcome, &until)
		s := l.entry(key).lease(token)
		s.intents = append(s.intents, intent{storage.Outcome(outcome), until})
		return true, err
	case "ended":
		err := scan(&key, &token)
		l.entry(key).lease(token).acked = true
		return true, err
	case "lost":
		err := scan(&key, &token)
		l.entry(key).lease(token).lost = true
		return true, err
	case "run":
		var attempt int
		err := scan(&key, &attempt)
		e := l.entry(key)
		e.runs = append(e.runs, run{attempt, c})
		return true, err
	case "cancelling":
		var until int64
		err := scan(&key, &until)
		e := l.entry(key)
		e.cancels.begun++
		e.until = max(e.until, until)
		return true, err
	case "expiring":
		var at int64
		err := scan(&at)
		l.over = max(l.over, at)
		return true, err
	}
	for name, f := range map[string]func(*entry) *int{
		"redriving": func(e *entry) *int { return &e.redrives.begun }, "redriven": func(e *entry) *int { return &e.redrives.acked },
		"cancelled": func(e *entry) *int { return &e.cancels.acked },
		"purging":   func(e *entry) *int { return &e.purges.begun }, "purged": func(e *entry) *int { return &e.purges.acked },
	} {
		if verb == name {
			err := scan(&key)
			*f(l.entry(key))++
			return true, err
		}
	}
	return false, nil
}

// enqueued returns the jobs whose enqueuing was acknowledged.
func (l *ledger) enqueued() []storage.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.ids))
}

func (l *ledger) entry(key int64) *entry {
	if l.jobs[key] == nil {
		l.jobs[key] = &entry{key: key, leases: map[int64]*leaseEntry{}}
	}
	return l.jobs[key]
}

func (e *entry) lease(token int64) *leaseEntry {
	if e.leases[token] == nil {
		e.leases[token] = &leaseEntry{token: token}
	}
	return e.leases[token]
}

// tokens returns those of all leases, in the order in which they were granted.
func (e *entry) tokens() []int64 { return slices.Sorted(maps.Keys(e.leases)) }

// last returns the latest lease whose end was acknowledged, or nil.
func (e *entry) last() *leaseEntry {
	for _, token := range slices.Backward(e.tokens()) {
		if s := e.leases[token]; s.acked {
			return s
		}
	}
	return nil
}

// meant returns how the lease ended, or was to end.
func (s *leaseEntry) meant() intent {
	if len(s.intents) == 0 {
		return intent{}
	}
	return s.intents[len(s.intents)-1]
}

// putsBack reports whether an outcome leaves the job to be run again.
func putsBack(o storage.Outcome) bool {
	switch o {
	case storage.OutcomeDone, storage.OutcomeCancelled, storage.OutcomeDead:
		return false
	}
	return true
}

// duplicates counts the runs that came after one whose outcome is not known to
// have been written. Such a one must have lost its lease: its process was
// killed, stopped or cut off, or has been told. Else it is a fault.
func (e *entry) duplicates() (n int, faults []string) {
	runs := slices.SortedFunc(slices.Values(e.runs), func(a, b run) int { return a.attempt - b.attempt })
	for i := 1; i < len(runs); i++ {
		before := runs[i-1]
		if before.attempt == runs[i].attempt {
			faults = append(faults, fmt.Sprintf("attempt %d was run twice", before.attempt))
			continue
		}
		s := e.leaseOf(before)
		switch {
		case s == nil:
			faults = append(faults, fmt.Sprintf("attempt %d was run without a lease", before.attempt))
		case s.acked:
			// What it ended with is judged by the lease that came next.
		case s.lost || before.by.faulty.Load():
			n++
		default:
			faults = append(faults, fmt.Sprintf("attempt %d was run again, though its lease was not lost", before.attempt))
		}
	}
	return n, faults
}

// leaseOf returns the lease under which a handler ran: of those with its attempt
// the last of that process, since one that was returned gives its number back.
func (e *entry) leaseOf(r run) (found *leaseEntry) {
	for _, token := range e.tokens() {
		if s := e.leases[token]; s.attempt == r.attempt && s.holder == r.by && !s.returned {
			found = s
		}
	}
	return found
}
