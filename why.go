package errand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// WhyCode says in a word what a [WhyReason] is.
type WhyCode string

// The codes.
const (
	// WhyRunning: the job runs.
	WhyRunning WhyCode = "running"
	// WhyEnded: the job has ended. Reason is why it is dead, if it is.
	WhyEnded WhyCode = "ended"
	// WhyNotDue: it was enqueued for later, or put off; if N is not zero, after attempt N.
	// It is due at Until.
	WhyNotDue WhyCode = "not_due"
	// WhyRetry: its last attempt failed. It waits for retry N of Of, in Phase, due at Until.
	WhyRetry WhyCode = "retry"
	// WhyUnavailable: its last attempt, N, could not reach the other side. The next one is
	// due at Until, and no retry is used up.
	WhyUnavailable WhyCode = "unavailable"
	// WhySnoozed: its handler asked in attempt N for a later run, at Until.
	WhySnoozed WhyCode = "snoozed"
	// WhyCrashed: its process died. The next attempt is due at Until.
	WhyCrashed WhyCode = "crashed"
	// WhyUrgent: it starts as soon as a worker of its queue and kind has a free runner,
	// whatever else is said of its lane.
	WhyUrgent WhyCode = "urgent"
	// WhyHeld: Queue, Kind or both are held for Reason, by By, from Since to Until. If the
	// hold lets single jobs through, and the last one has not ended, Job is that one and
	// JobSince is when it began to run.
	WhyHeld WhyCode = "held"
	// WhyNoWorker: no live worker works for the queue and kind.
	WhyNoWorker WhyCode = "no_worker"
	// WhyGate: the gate of Queue or Kind is closed in Worker for Reason, Since.
	WhyGate WhyCode = "gate"
	// WhyThrottle: a throttle keeps the job back.
	//
	//   - Without Until: the throttle of Queue or Kind lets N start a second in Worker, and
	//     more wait.
	//   - With Until alone: the [GroupThrottle] of Queue has put off the job until then. Only the
	//     process that did so knows that.
	//   - With the Reason ReasonShared: Settings.Starts of Queue or Kind. The next token of
	//     all processes comes at Until, for the first of its jobs.
	WhyThrottle WhyCode = "throttle"
	// WhyConcurrency: Worker runs N jobs of Queue or Kind, or of all, and no more at a time.
	WhyConcurrency WhyCode = "concurrency"
	// WhyBatch: Worker does the jobs of Queue and Kind in batches, and waits until Of of
	// them are ready, or Until. N are.
	WhyBatch WhyCode = "batch"
	// WhyOpening: Queue and Kind were closed for long and open gently in Worker: N run at a
	// time for now, or none before Until.
	WhyOpening WhyCode = "opening"
	// WhyBudget: the retry budget of Queue or Kind is empty in Worker.
	WhyBudget WhyCode = "budget"
	// WhySuspect: it has crashed N times in a row. Such jobs start one at a time.
	WhySuspect WhyCode = "suspect"
	// WhyBlocked: it waits for N others of its group, and More if there are more. Job is the
	// first of them; if Job is dead, Reason is why and Since when. With a GroupLimit above 1,
	// Of of its group run or are ready, and N blocked ones go before it. If it waits behind
	// the holder of its unique key, Job is that holder, and N is 1.
	WhyBlocked WhyCode = "blocked"
	// WhyExpires: it ends if no attempt begins before Until: for Reason ReasonExpired as its
	// OnExpire says, for ReasonDeadline dead. If Until is over, it ends when a worker looks.
	WhyExpires WhyCode = "expires"
	// WhyBehind: N ready jobs of its queue and kind go before it; More if there are more. If
	// N is zero it is the next.
	WhyBehind WhyCode = "behind"
)

// ReasonShared is the Reason of a WhyThrottle that is kept in the file.
const ReasonShared = "shared"

// WhyReason is one reason why a job does not run. Fields that its Code does not
// mention are zero.
type WhyReason struct {
	Code WhyCode `json:"code"`
	// Text is the reason in words, for people.
	Text   string       `json:"text"`
	Queue  string       `json:"queue,omitempty"`
	Kind   string       `json:"kind,omitempty"`
	Worker string       `json:"worker,omitempty"` // WorkerInfo.Instance
	Reason string       `json:"reason,omitempty"`
	By     string       `json:"by,omitempty"`
	Since  time.Time    `json:"since,omitzero"`
	Until  time.Time    `json:"until,omitzero"`
	N      int          `json:"n,omitempty"`
	Of     int          `json:"of,omitempty"`
	More   bool         `json:"more,omitempty"`
	Phase  policy.Phase `json:"phase,omitempty"`
	Job    ID           `json:"job,omitzero"`
	// JobSince is since when Job runs, of a WhyHeld.
	JobSince time.Time `json:"job_since,omitzero"`
}

// Why is the answer of [Queue.Why].
type Why struct {
	ID    ID     `json:"id"`
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	State State  `json:"state"`
	// Reasons are all that is known to keep the job from running, or say that it runs or has
	// ended, and until when it may begin. The last reason of a ready job is its place.
	Reasons []WhyReason `json:"reasons"`
}

// String returns the reasons in words, one to a line.
func (w Why) String() string {
	var lines []string
	for _, r := range w.Reasons {
		lines = append(lines, r.Text)
	}
	return strings.Join(lines, "\n")
}

// mostAhead is how many jobs Why counts that go before one.
const mostAhead = 1000

// Why returns the reasons for which a job does not run now. It knows the holds, and
// what the workers of all processes show of their gates and limits, see
// [Queue.Workers]. It counts up to 1,000 jobs that go before it. The call is quick,
// however many jobs there are. It returns [ErrNotFound] if there is no such job.
func (q *Queue) Why(ctx context.Context, id ID) (Why, error) {
	r, err := q.store.Job(ctx, id)
	if err != nil {
		return Why{}, err
	}
	j, _ := jobInfo(&r) // of what does not decode only the policy would be looked at
	w := Why{ID: id, Queue: j.Queue, Kind: j.Kind, State: j.State}
	switch {
	case j.State == Running:
		text := fmt.Sprintf("it runs, attempt %d", j.Attempt)
		if j.Cancelling {
			text += ", and was asked to stop"
		}
		w.add(WhyReason{Code: WhyRunning, Text: text, N: j.Attempt})
		return w, nil
	case j.State == Blocked:
		err := q.blocked(ctx, &w, &j)
		w.expires(&j, q.clock.current(ctx))
		return w, err
	case j.State != Ready && j.State != Scheduled:
		w.ended(&j)
		return w, nil
	}
	now := q.clock.current(ctx)
	holds, err := q.store.Holds(ctx, now)
	if err != nil {
		return Why{}, err
	}
	workers, err := q.Workers(ctx)
	knows := err == nil
	if err != nil && !errors.Is(err, ErrUnsupportedDB) {
		return Why{}, err
	}
	place, err := q.store.Ahead(ctx, id, mostAhead)
	if err != nil && !errors.Is(err, ErrNotFound) { // it may have ended meanwhile
		return Why{}, err
	}
	if j.State == Scheduled {
		d, _ := q.policyFor(&j, workers)
		if !q.putOff(&w, &j, workers, now) {
			w.later(&j, d, now)
		}
	}
	serving := slices.DeleteFunc(slices.Clone(workers), func(i WorkerInfo) bool { return !i.Serves(j.Queue, j.Kind) })
	if knows && len(serving) == 0 {
		w.unserved(workers)
	}
	if place.Urgent {
		w.expires(&j, now)
		w.add(WhyReason{Code: WhyUrgent, Text: "it was made urgent: it starts as soon as a worker has a free place"})
		return w, nil
	}
	for i := range holds {
		w.held(&holds[i], now)
	}
	due := j.State == Ready || !j.DueAt.After(now) // no worker looks for jobs while it has no runner for them
	d, err := q.demand(ctx, &j, serving, now)
	if err != nil {
		return Why{}, err
	}
	d.due, d.retry = due, j.Retry > 0
	w.limited(serving, d)
	w.throttled(&place, now)
	if due && j.Crashes >= suspectCrashes {
		w.add(WhyReason{Code: WhySuspect, N: j.Crashes, Text: fmt.Sprintf("its process died %d times in a row: such jobs start one at a time", j.Crashes)})
	}
	w.expires(&j, now)
	if j.State == Ready {
		w.behind(place)
	}
	return w, nil
}

// suspectCrashes is how many crashes in a row make a job a suspect in the engine.
const suspectCrashes = 2

func (w *Why) add(r WhyReason) { w.Reasons = append(w.Reasons, r) }

// moment returns a time as texts have it.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (w *Why) ended(j *JobInfo) {
	text := fmt.Sprintf("it has ended as %s at %s", j.State, moment(j.EndedAt))
	if j.State == Dead {
		text = fmt.Sprintf("it is in the dead letters since %s, as %s", moment(j.EndedAt), j.Reason)
	}
	failed := slices.ContainsFunc(j.History, func(h Failure) bool { return h.Phase != PhaseEdited && h.Error == j.Error })
	switch {
	case j.State != Done:
		text += because(j.Error)
	case j.Error == "":
	case failed:
		text += "; an attempt before failed" + because(j.Error)
	default: // as of a result for which there was no room
		text += "; note" + because(j.Error)
	}
	w.add(WhyReason{Code: WhyEnded, Reason: string(j.Reason), Since: j.EndedAt, Text: text})
}

// because returns the end of a text that quotes an error.
func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + cut(text)
}

// later adds why a scheduled job is due later.
func (w *Why) later(j *JobInfo, d policy.Document, now time.Time) {
	due := fmt.Sprintf("due at %s", moment(j.DueAt))
	if !j.DueAt.After(now) {
		due += ", and made ready by the next look of a worker"
	}
	r := WhyReason{Until: j.DueAt}
	last := Failure{}
	for _, h := range j.History {
		if h.Phase != PhaseEdited {
			last = h
		}
	}
	switch {
	case j.Attempt == 0:
		r.Code, r.Text = WhyNotDue, "it was enqueued for later, or put off: it is "+due
	case last.Attempt == j.Attempt && j.Retry > 0:
		retry := d.For(policy.Retryable)
		r.Code, r.N, r.Of, r.Phase = WhyRetry, j.Retry, max(retry.Retries, j.Retry), policy.PhasePostBackoff
		if phase, _, ok := retry.Next(j.Retry - 1); ok {
			r.Phase = phase
		}
		r.Text = fmt.Sprintf("it waits for retry %d of %d, in phase %s: it is %s; attempt %d failed%s", r.N, r.Of, r.Phase, due, last.Attempt, because(last.Error))
	case j.Crashes > 0:
		r.Code, r.Text = WhyCrashed, "its process died while it ran: it is "+due
	case j.Unreached:
		r.Code, r.N = WhyUnavailable, j.Attempt
		r.Text = fmt.Sprintf("attempt %d could not reach the other side, which costs no retry: it is %s%s", j.Attempt, due, because(j.Error))
	case j.Snoozes > 0:
		r.Code, r.N = WhySnoozed, j.Attempt
		r.Text = fmt.Sprintf("its handler put it off in attempt %d: it is %s%s", j.Attempt, due, lastly(last))
	default:
		r.Code, r.N = WhyNotDue, j.Attempt
		r.Text = fmt.Sprintf("it was put off after attempt %d: it is %s%s", j.Attempt, due, lastly(last))
	}
	w.add(r)
}

// lastly returns the end of a text about a job that was put off since it failed, if it has.
func lastly(last Failure) string {
	if last.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf("; attempt %d failed%s", last.Attempt, because(last.Error))
}

// PolicyOf returns the delivery policy in effect for a job, also of a kind that this
// program does not know. It is that of the first worker of all processes that has a
// handler for the job, else that of the options of this queue. known is false if there is
// no such worker and the job has no retries of its own: the program that works for it may
// have others. A store that shows nothing of other processes shows no worker.
func (q *Queue) PolicyOf(ctx context.Context, j JobInfo) (d policy.Document, known bool, err error) {
	workers, err := q.Workers(ctx)
	if err != nil && !errors.Is(err, ErrUnsupportedDB) {
		return policy.Document{}, false, err
	}
	d, known = q.policyFor(&j, workers)
	return d, known || j.Policy != nil && j.Policy.Retry != nil, nil
}

// mostComing is how many retries JobInfo.Coming returns.
const mostComing = 10

// Coming returns the next retries that a job has left by a policy, up to ten: see
// [Queue.PolicyOf]. A job that waits for a retry has that one first. An attempt that runs, or that
// waits for a worker, is taken to fail now. Jobs in other states than scheduled, ready and running
// have none.
func (j *JobInfo) Coming(p policy.Policy, now time.Time) (all []policy.Coming) {
	if j.State != Scheduled && j.State != Ready && j.State != Running {
		return nil
	}
	at, retry := j.DueAt, j.Retry
	if phase, delay, ok := p.Next(retry - 1); ok && j.State == Scheduled { // it waits for this one
		all = append(all, policy.Coming{Retry: retry, Phase: phase, Delay: delay, At: at.UTC()})
	}
	if at.Before(now) {
		at = now
	}
	for len(all) < mostComing {
		phase, delay, ok := p.Next(retry)
		if !ok {
			break
		}
		retry++
		at = at.Add(delay)
		all = append(all, policy.Coming{Retry: retry, Phase: phase, Delay: delay, At: at.UTC()})
	}
	return all
}

// policyFor returns the delivery policy in effect for a job: by a worker that has its
// handler, which known reports, else by the options of this queue.
func (q *Queue) policyFor(j *JobInfo, workers []WorkerInfo) (d policy.Document, known bool) {
	var own, kind policy.Document
	if j.Policy != nil {
		own = *j.Policy
	}
	all := q.opts.Policy.Delivery()
	queue, ok := delivery(q.opts.optionsOf(j.Queue).Policy)
	if !ok {
		queue = all
	}
	for i := range workers {
		if w := &workers[i]; w.Serves(j.Queue, j.Kind) && w.Policy != nil {
			ofQueue, ofKind, _ := w.limits(j.Queue, j.Kind)
			all, queue, known = *w.Policy, *w.Policy, true
			if ofQueue.Policy != nil {
				queue = *ofQueue.Policy
			}
			if ofKind.Policy != nil {
				kind = ofKind.Policy.Document
			}
			break
		}
	}
	return queue.Effective(own.Or(kind), all.Document), known
}

// laneText names a lane, of which one name may be empty.
func laneText(queue, kind string) string {
	switch {
	case queue == "":
		return "kind " + kind
	case kind == "":
		return "queue " + queue
	}
	return fmt.Sprintf("kind %s in queue %s", kind, queue)
}

// held adds a hold, if it is about the job's lane.
func (w *Why) held(h *HoldState, now time.Time) {
	if !h.Includes(w.Queue, w.Kind) {
		return
	}
	r := WhyReason{Code: WhyHeld, Queue: h.Queue, Kind: h.Kind, Reason: h.Reason, By: h.By, Since: h.Since, Until: h.Until}
	text := laneText(h.Queue, h.Kind)
	if h.Reason == storage.HoldPaused {
		text += " is paused"
	} else {
		text += fmt.Sprintf(" is held for %q", h.Reason)
	}
	if h.By != "" {
		text += " by " + h.By
	}
	text += " since " + moment(h.Since)
	switch {
	case h.Probe:
		if h.Until.After(now) {
			text += ", and lets one job through at " + moment(h.Until)
		} else {
			text += ", and lets one job through as soon as a worker has a free place for it"
		}
		if p := h.Through; p.Token != 0 {
			r.Job, r.JobSince = p.Job, p.Since
			text += fmt.Sprintf("; job %v, which it has let through, runs since %s", p.Job, moment(p.Since))
		}
	case h.Until.IsZero() && h.Reason == storage.HoldPaused:
		text += " until it is resumed"
	case h.Until.IsZero():
		text += " until it is released"
	default:
		text += " until " + moment(h.Until)
	}
	switch {
	case h.Detail == "":
	case h.By == "errand" || h.By == "handler": // it may be the error of another job than is named before
		text += "; the last error" + because(h.Detail)
	default:
		text += "; the note" + because(h.Detail)
	}
	r.Text = text
	w.add(r)
}

// unserved adds that no worker works for the job.
func (w *Why) unserved(all []WorkerInfo) {
	r := WhyReason{Code: WhyNoWorker, Queue: w.Queue, Kind: w.Kind}
	unknown := slices.IndexFunc(all, func(i WorkerInfo) bool { return i.Unknown })
	switch {
	case len(all) == 0:
		r.Text = "no worker runs"
	case !slices.ContainsFunc(all, func(i WorkerInfo) bool { return storage.MatchQueue(i.Queues, w.Queue) }):
		r.Text = "no worker that runs works for queue " + w.Queue
	default:
		r.Text = fmt.Sprintf("no worker that runs has a handler for kind %s in queue %s", w.Kind, w.Queue)
	}
	if unknown >= 0 {
		r.Worker = all[unknown].Instance
		r.Text += fmt.Sprintf(", unless %s does, which does not show what it works for", r.Worker)
	}
	w.add(r)
}

// behind adds the place of a ready job.
func (w *Why) behind(place storage.Ahead) {
	r := WhyReason{Code: WhyBehind, N: place.N, More: place.More}
	switch {
	case place.More:
		r.Text = fmt.Sprintf("more than %d ready jobs of its queue and kind go before it", place.N)
	case place.N == 0:
		r.Text = "it is the next of its queue and kind"
	case place.N == 1:
		r.Text = "1 ready job of its queue and kind goes before it"
	default:
		r.Text = fmt.Sprintf("%d ready jobs of its queue and kind go before it", place.N)
	}
	w.add(r)
}

// expires adds until when a job that waits may begin.
func (w *Why) expires(j *JobInfo, now time.Time) {
	r := WhyReason{Code: WhyExpires, Until: j.StartBy, Reason: string(ReasonExpired)}
	what, end := "its time to start", "it ends as expired"
	if j.OnExpire == Dead {
		end = "it dies as expired"
	}
	if j.StartBy.IsZero() || !j.Deadline.IsZero() && j.Deadline.Before(j.StartBy) {
		r.Until, r.Reason = j.Deadline, string(ReasonDeadline)
		what, end = "its deadline", "it dies as too late"
	}
	switch {
	case r.Until.IsZero():
		return
	case r.Until.After(now):
		r.Text = fmt.Sprintf("%s at %s, unless an attempt begins before", end, moment(r.Until))
	default:
		r.Text = fmt.Sprintf("%s is over since %s: %s when a worker looks", what, moment(r.Until), end)
	}
	w.add(r)
}
