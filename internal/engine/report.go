package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/errandq/errand/storage"
)

const (
	// The first few of lines that are alike are written at once, then one in each
	// interval: an outage must be seen, and must not fill the disk with its log.
	reportBurst = 5
	reportEvery = 5 * time.Second
	// maxLogged is how much of an error's text a line has. The job has all of it.
	maxLogged = 512
	// mostNamed is how many jobs, or processes, a line about many names.
	mostNamed = 5
)

const (
	attemptFailed = "errand: attempt failed"
	notDecoded    = "errand: attempt failed: args or headers do not decode, is the handler's type another than that enqueued?"
	jobIsDead     = "errand: job is dead"
	metTrouble    = "errand: attempt could not use the queue's database, which is no failure of the job"
	interrupted   = "errand: attempt was interrupted"

	interruptedOften = "errand: attempt was interrupted, after four or more that used up nothing: does the job stop the program?"
	leaseLost        = "errand: lease lost"
	notExtended      = "errand: lease could not be extended in time"
	tooLate          = "errand: outcome came too late, the lease was lost"
	notAsked         = "errand: the store leased a job of a queue or kind that it was not asked for"
	ignoredAfter     = "errand: what a handler returned after it had completed its job is ignored"
	notTaken         = "errand: the store refused an outcome"
	noResult         = "errand: the disk is full: a job ends without its result"
	lessText         = "errand: the disk is full: an error is kept in part"
	cutByRoom        = "errand: the disk is full: the outcome of an attempt has no room, its job runs again"
)

// reports writes the lines of the log that jobs cause, and limits their number.
type reports struct {
	cfg   *Config
	lines map[line]*reported
	at    time.Time // log how many lines were left out; zero: none was

	suspected map[string]bool // kinds that suspect was called for
	recovery  recovery
}

// line is what lines have in common that are limited together.
type line struct {
	level   slog.Level
	message string
	kind    string
}

type reported struct {
	limiter *rate.Limiter
	left    int    // lines left out since the last one that was written
	first   []any  // attributes of the first that was left out
	err     string // error of the last that was left out
}

// job logs a line about a job, unless there were many like it.
func (r *reports) job(level slog.Level, message string, job *storage.Leased, err string, more ...any) {
	r.limit(r.lineOf(level, message, job.Kind), err, func() []any {
		return append(withError(jobAttrs(job), err), more...)
	})
}

// outcome logs a line about an outcome that the store did not take.
func (r *reports) outcome(level slog.Level, message string, f *outcome) {
	r.limit(r.lineOf(level, message, ""), "", func() []any {
		return []any{"job", f.job.ID.String(), "outcome", f.Outcome.String()}
	})
}

// limit logs a line with its attributes, or counts it if there were too many
// like it.
func (r *reports) limit(k line, err string, attrs func() []any) {
	s := r.lines[k]
	if s == nil {
		s = &reported{limiter: rate.NewLimiter(rate.Every(reportEvery), reportBurst)}
		r.lines[k] = s
	}
	now := time.Now()
	if s.limiter.AllowN(now, 1) {
		r.log(k, attrs())
		return
	}
	if s.left++; s.left == 1 {
		s.first = attrs()
	}
	s.err = err
	r.at = sooner(r.at, now.Add(reportEvery))
}

// log writes a line, with how many like it were left out since the last one.
func (r *reports) log(k line, attrs []any) {
	if s := r.lines[k]; s.left > 0 {
		attrs = append(attrs, "suppressed", s.left)
		s.forget()
	}
	r.cfg.Logger.Log(context.Background(), k.level, k.message, attrs...)
}

func (s *reported) forget() { s.left, s.first, s.err = 0, nil, "" }

func withError(attrs []any, err string) []any {
	if err == "" {
		return attrs
	}
	return append(attrs, "error", shorten(err, maxLogged))
}

// lineOf returns the line of a message about a job of a kind. Kinds without a handler of
// their own share one, as there may be any number of them.
func (r *reports) lineOf(level slog.Level, message, kind string) line {
	if _, known := r.cfg.Handlers[kind]; !known {
		kind = ""
	}
	return line{level, message, kind}
}

// leftOut logs how many lines were left out since the last one that was written.
// A single line is written as it was. At the end the limits do not count.
func (r *reports) leftOut(now time.Time, end bool) {
	r.at = time.Time{}
	for k, s := range r.lines {
		switch {
		case s.left == 0:
		case !end && !s.limiter.AllowN(now, 1):
			r.at = now.Add(reportEvery)
		case s.left == 1:
			only := s.first
			s.forget()
			r.log(k, only)
		default:
			var of []any
			if k.kind != "" { // else they are of any number of kinds
				of = []any{"kind", k.kind}
			}
			r.log(k, withError(of, s.err))
		}
	}
}

// ended logs the end of an attempt that has failed.
func (r *reports) ended(a *attempt, f *storage.Finish) {
	v := &a.verdict
	var more []any
	if f.Outcome == storage.OutcomeRetry || f.Outcome == storage.OutcomeUnavailable {
		more = []any{"due", f.DueAt}
	}
	switch {
	case v.kind == verdictInterrupted:
		r.interrupted(a, f)
	case v.stack != "" && v.trouble == nil:
		r.job(slog.LevelError, attemptFailed, a.job, v.text, append(more, "stack", v.stack)...)
	case v.kind == verdictDecode:
		r.job(slog.LevelError, notDecoded, a.job, v.text, more...)
	case f.Outcome == storage.OutcomeRetry:
		r.job(slog.LevelInfo, attemptFailed, a.job, v.text, more...)
	case v.trouble != nil:
		r.job(slog.LevelWarn, metTrouble, a.job, v.text, more...)
	case f.Outcome == storage.OutcomeUnavailable:
		r.job(slog.LevelInfo, unreached, a.job, v.text, more...)
	}
	if f.Outcome == storage.OutcomeDead {
		r.dead(a.job, f)
	}
}

// interrupted logs the end of an attempt that counts for nothing.
func (r *reports) interrupted(a *attempt, f *storage.Finish) {
	level := slog.LevelInfo
	var more []any
	if !f.DueAt.IsZero() {
		more = append(more, "due", f.DueAt)
	}
	if a.verdict.stack != "" {
		level, more = slog.LevelWarn, append(more, "stack", a.verdict.stack)
	}
	if a.verdict.ownError && sparedLately(a.job) >= oftenSpared {
		r.job(slog.LevelWarn, interruptedOften, a.job, a.verdict.text, more...)
		return
	}
	r.job(level, interrupted, a.job, a.verdict.text, more...)
}

func (r *reports) dead(job *storage.Leased, f *storage.Finish) {
	r.job(slog.LevelWarn, jobIsDead, job, f.Error, "reason", string(f.Reason))
}

// suspect logs, once for each kind, why its suspects run one at a time.
func (r *reports) suspect(job *storage.Leased) {
	if r.suspected[job.Kind] {
		return
	}
	r.suspected[job.Kind] = true
	r.cfg.Logger.Warn("errand: the process of a job has died twice in a row while it ran, such jobs run one at a time",
		append(jobAttrs(job), "crashes", job.Crashes)...)
}

// recovery collects what is logged of the jobs of processes that are gone: one
// line, however many calls of Reclaim it takes to get them.
type recovery struct {
	jobs    int
	ended   [storage.OutcomeUnavailable + 1]int // jobs by outcome
	ids     []string                            // of the first jobs
	holders []string                            // of the first jobs
}

func (r *recovery) add(job *storage.Reclaimed, f *storage.Finish) {
	r.jobs++
	r.ended[f.Outcome]++
	if len(r.ids) < mostNamed {
		r.ids = append(r.ids, job.ID.String())
	}
	if len(r.holders) < mostNamed && !slices.Contains(r.holders, job.Holder) {
		r.holders = append(r.holders, job.Holder)
	}
}

// recovered logs what became of the jobs of processes that are gone.
func (r *reports) recovered() {
	all := &r.recovery
	if all.jobs == 0 {
		return
	}
	attrs := []any{"jobs", all.jobs}
	for outcome, n := range all.ended {
		if n > 0 {
			attrs = append(attrs, storage.Outcome(outcome).String(), n)
		}
	}
	attrs = append(attrs, "holders", strings.Join(all.holders, " "), "examples", strings.Join(all.ids, " "))
	r.cfg.Logger.Info("errand: jobs recovered from processes that are gone", attrs...)
	r.recovery = recovery{}
}

// jobAttrs returns the log attributes that name an attempt.
func jobAttrs(job *storage.Leased) []any {
	return []any{"job", job.ID.String(), "kind", job.Kind, "queue", job.Queue, "attempt", job.Attempt}
}
