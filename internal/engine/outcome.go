package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	maxError = 8 << 10
	maxStack = 16 << 10

	minSnooze  = 100 * time.Millisecond
	crashDelay = time.Second // after a crash
	backDelay  = time.Second // of a job that could not be started
	mostBack   = time.Minute // of a suspect, if there are many
)

// outcome is what became of an attempt.
type outcome struct {
	storage.Finish
	job    *storage.Leased
	feared bool    // it was told that the lease is lost
	open   *openTx // nil: no transaction of its handler can be open
	timing timing
	used   int       // the mark that the job reaches, in percent of its retries; see [mark]
	noRoom time.Time // when the disk had no room for it first; zero: it had, or was not asked
	// lessened is what was logged when it was last made smaller for want of room; empty: never.
	lessened string
}

// outcomes are those of attempts that have ended, until the store has written
// them.
type outcomes struct {
	waiting []outcome
	flight  []outcome        // in the exchange under way
	finish  []storage.Finish // the same, as the store is told
	lost    *exchange        // they are of that one, which is to be repeated; nil: none
	most    int              // that go in the next exchange, as there was no room for more; 0: mostOutcomes
	behind  bool             // the single one in flight, for which there was no room, comes after the others
	refused int              // single ones without room, one after the other
	alone   bool             // they go without a heartbeat next, which found no room without them
	streaks streaks
	longest longest
}

// add notes the outcome of a job, which is dropped.
func (o *outcomes) add(job *storage.Leased, f storage.Finish) {
	drop(job, f.Outcome == storage.OutcomeDead || f.Spent != nil)
	o.waiting = append(o.waiting, outcome{Finish: f, job: job})
}

// send returns the outcomes for the next exchange.
func (o *outcomes) send() []storage.Finish {
	o.flight, o.waiting = o.waiting, o.flight[:0]
	if n := o.first(); len(o.flight) > n {
		o.waiting = append(o.waiting, o.flight[n:]...)
		clear(o.flight[n:])
		o.flight = o.flight[:n]
	}
	o.finish = o.finish[:0]
	for i := range o.flight {
		o.finish = append(o.finish, o.flight[i].Finish)
	}
	return o.finish
}

// written forgets the outcomes of the exchange under way.
func (o *outcomes) written() {
	o.alone = false
	if len(o.flight) == 0 {
		return
	}
	if 2*o.most >= mostOutcomes {
		o.most = 0
	}
	o.most *= 2
	o.refused = 0
	clear(o.flight)
	clear(o.finish)
	o.flight = o.flight[:0]
}

// putBack keeps the outcomes of an exchange that failed for the next one. The
// clock was set back by this much since they were sent.
func (o *outcomes) putBack(by time.Duration) {
	earlier(o.flight, by)
	if o.behind {
		o.behind = false
		o.waiting = append(o.waiting, o.flight...)
		clear(o.flight)
		o.flight = o.flight[:0]
		return
	}
	o.flight = append(o.flight, o.waiting...)
	clear(o.waiting)
	o.flight, o.waiting = o.waiting[:0], o.flight
}

// outcome decides what becomes of a job whose attempt ended with v at now. It
// depends on nothing but its arguments and the Config.
func (c *Config) outcome(job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	f := storage.Finish{Lease: job.Lease}
	switch v.kind {
	case verdictDone:
		f.Outcome = storage.OutcomeDone
	case verdictCancelled:
		f.Outcome, f.Error = storage.OutcomeCancelled, v.text
	case verdictInterrupted:
		return c.interrupted(f, v, now)
	case verdictUnstarted:
		f.Outcome, f.DueAt = storage.OutcomeReturned, now.Add(backDelay)
	case verdictSnoozed:
		return c.snooze(f, job, v, now)
	default:
		if v.trouble != nil {
			return c.troubledBy(f, job, v, took, now)
		}
		if v.class == policy.Unavailable {
			return c.unavailable(f, job, v, took, now)
		}
		return c.failure(f, job, v, took, now)
	}
	return f
}

func (c *Config) snooze(f storage.Finish, job *storage.Leased, v verdict, now time.Time) storage.Finish {
	if job.Snoozes < c.MaxSnoozes {
		f.Outcome, f.DueAt = storage.OutcomeSnooze, now.Add(max(v.after, minSnooze))
		return f
	}
	if v.spares {
		v.after = 0
		return c.interrupted(f, v, now)
	}
	d := c.effectiveAfter(job, &v)
	text := fmt.Sprintf("snoozed more than %d times, the last time: %s", c.MaxSnoozes, v.text)
	return dead(f, job, d, storage.ReasonSnoozed, cut(text, maxError))
}

// failure looks up the next delay in the policy for the class of the error. All
// classes share one retry index.
func (c *Config) failure(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	d := c.effectiveAfter(job, &v)
	f.Failure = &storage.NewFailure{
		Phase: phaseOf(d, job.Retry).String(), Error: v.text, Stack: v.stack, Duration: took, RetryAfter: v.after > 0,
	}
	if v.class == policy.Permanent {
		return dead(f, job, d, storage.ReasonPermanent, v.text)
	}
	p := d.For(v.class)
	phase, delay, ok := p.Next(job.Retry)
	switch {
	case ok:
	case v.kind == verdictDecode:
		return dead(f, job, d, storage.ReasonDecode, v.text)
	default:
		return dead(f, job, d, storage.ReasonExhausted, v.text)
	}
	delay = p.Jitter.Apply(phase, delay, c.Rand())
	if v.after > 0 {
		delay = policy.Floor(delay, min(v.after, c.MaxRetryAfter), c.Rand())
	}
	f.Outcome, f.DueAt = storage.OutcomeRetry, now.Add(delay)
	return f
}

// reclaimed decides what becomes of a job taken from a holder that is gone.
func (c *Config) reclaimed(r *storage.Reclaimed, now time.Time) storage.Finish {
	f := storage.Finish{Lease: r.Lease}
	if r.Cancelling {
		f.Error = ErrCancelled.Error()
	}
	switch {
	case r.Fate == storage.Unstarted:
		f.Outcome = storage.OutcomeReturned
	case r.Cancelling:
		f.Outcome = storage.OutcomeCancelled
	case r.Fate == storage.Crashed && c.ofHandler(r.Queue, r.Kind) != NoCrashes:
		return c.crash(f, r, now)
	default:
		f.Outcome = storage.OutcomeInterrupted
	}
	return f
}

func (c *Config) crash(f storage.Finish, r *storage.Reclaimed, now time.Time) storage.Finish {
	d := c.effective(&r.Leased)
	text := fmt.Sprintf("the process died while the handler ran (crash %d in a row)", r.Crashes+1)
	f.Failure = &storage.NewFailure{Phase: phaseOf(d, r.Retry).String(), Error: text, Instance: r.Holder}
	// An engine that does not work for the lane may not know its policy, nor what follows
	// its death. It leaves the decision to one that does, see buryCrashed.
	if c.takes(r.Queue, r.Kind) && c.diesOf(r.Crashes+1, &r.Leased, d) {
		return dead(f, &r.Leased, d, storage.ReasonCrashed, text)
	}
	f.Outcome, f.DueAt = storage.OutcomeCrashed, now.Add(crashDelay)
	if again := r.StartedAt.Add(crashDelay); !r.StartedAt.IsZero() && again.Before(f.DueAt) {
		f.DueAt = again
	}
	return f
}

// dead makes f the outcome of a dead letter, with the policy in effect.
func dead(f storage.Finish, job *storage.Leased, d policy.Document, reason storage.Reason, text string) storage.Finish {
	f.Outcome, f.Reason, f.Error, f.Cause = storage.OutcomeDead, reason, text, causeOf(text)
	b, err := json.Marshal(d)
	if err != nil {
		b = job.Policy
	}
	f.Policy = b
	return f
}

// cut returns at most the first n bytes of s, without half a rune. Bytes that no
// database takes as text are replaced.
func cut(s string, n int) string {
	s = shorten(s, n)
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	return shorten(s, n)
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for back := 0; back < utf8.UTFMax-1 && n > 0 && !utf8.RuneStart(s[n]); back++ {
		n--
	}
	return s[:n]
}
