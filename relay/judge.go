package relay

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// MadeHeader is the header of a job that says when it was made on its device, as in RFC 3339. A job
// of a device without a clock has none, nor has one whose own headers leave no room for it.
const MadeHeader = "errand-made"

// The limits of the keys of a queue's jobs, in bytes.
const (
	maxGroup  = 256
	maxUnique = 1024
)

// judge enqueues the jobs of a send in the transaction of its request.
type judge struct {
	ctx    context.Context
	queue  *errand.Queue
	tx     *sql.Tx
	device string
	lookup bool
	rights Rights // with a Queue

	reasons int   // bytes
	retry   int   // seconds after which there may be room; zero if there is
	err     error // of the database; the transaction must not commit
}

// allLater returns the verdicts on jobs of which none is tried.
func allLater(jobs []wire.Job) []ratchet.Verdict {
	all := make([]ratchet.Verdict, len(jobs))
	for i, j := range jobs {
		all[i] = ratchet.Verdict{Job: ratchet.ID(j.ID), Outcome: ratchet.Later}
	}
	return all
}

// judge returns the verdicts on jobs, which are enqueued if these say so. It tries all jobs in one
// call first, and one by one if that call is refused.
func (j *judge) judge(jobs []wire.Job) []ratchet.Verdict {
	plain := make([]ratchet.Job, len(jobs))
	ready, faults := make([]errand.NewJob, len(jobs)), make([]error, len(jobs))
	for i := range jobs {
		plain[i] = ratchet.Job{ID: ratchet.ID(jobs[i].ID), Group: jobs[i].Group}
		ready[i], faults[i] = j.prepare(&jobs[i])
	}
	if !j.lookup && !slices.ContainsFunc(faults, func(err error) bool { return err != nil }) {
		if added, err := j.queue.EnqueueManyTx(j.ctx, j.tx, ready); err == nil {
			next := 0
			return ratchet.Judge(plain, func(ratchet.Job) (ratchet.Outcome, string) {
				next++
				return outcomeOf(added[next-1]), ""
			})
		}
	}
	place := make(map[ratchet.ID]int, len(jobs))
	for i, p := range plain {
		place[p.ID] = i
	}
	return ratchet.Judge(plain, func(p ratchet.Job) (ratchet.Outcome, string) {
		i := place[p.ID]
		return j.one(ready[i], jobs[i].Headers, faults[i])
	})
}

// one tries one job, unless there is a fault of it. If there is no room for [MadeHeader] it goes with the headers
// that it had on the device.
func (j *judge) one(job errand.NewJob, headers map[string]string, fault error) (ratchet.Outcome, string) {
	if j.err != nil || j.reasons > maxReasons-wire.MaxReason {
		return ratchet.Later, ""
	}
	if fault == nil && j.lookup {
		there, err := j.queue.Jobs(j.ctx, errand.JobFilter{Origin: job.Options.Origin}, &errand.ListOptions{Limit: 1})
		if j.err = err; err != nil {
			return ratchet.Later, ""
		}
		if len(there.Jobs) > 0 {
			return ratchet.Duplicate, ""
		}
	}
	var added []errand.Enqueued
	if fault == nil {
		// As one of many, since middleware is named in the error then.
		added, fault = j.queue.EnqueueManyTx(j.ctx, j.tx, []errand.NewJob{job})
		if field, ok := errors.AsType[*errand.FieldError](fault); ok && strings.HasSuffix(field.Field, "headers") && !maps.Equal(job.Options.Headers, headers) {
			job.Options.Headers = headers
			added, fault = j.queue.EnqueueManyTx(j.ctx, j.tx, []errand.NewJob{job})
		}
	}
	middleware, ofMiddleware := errors.AsType[*door.JobError](fault)
	switch {
	case fault == nil:
		return outcomeOf(added[0]), ""
	case j.ctx.Err() != nil:
		j.err = j.ctx.Err()
	case ofMiddleware:
		return j.refuse(middleware.Err)
	case errors.Is(fault, errand.ErrInvalid):
		return j.refuse(fault)
	case errors.Is(fault, errand.ErrDuplicate):
		return ratchet.Duplicate, ""
	case errors.Is(fault, errand.ErrQueueFull):
		j.retry = retryFailed
	default:
		j.err = fault
	}
	return ratchet.Later, ""
}

func outcomeOf(e errand.Enqueued) ratchet.Outcome {
	if e.Duplicate {
		return ratchet.Duplicate
	}
	return ratchet.Enqueued
}

func (j *judge) refuse(err error) (ratchet.Outcome, string) {
	text := strings.ReplaceAll(strings.ReplaceAll(err.Error(), "jobs[0].", ""), "\n", "; ")
	text = wire.Cut(strings.ToValidUTF8(text, "?"), wire.MaxReason)
	j.reasons += len(text)
	return ratchet.Refused, text
}

// prepare returns a job as the queue takes it, or why the device may not send it.
func (j *judge) prepare(w *wire.Job) (errand.NewJob, error) {
	o := &errand.JobOptions{
		Queue: j.rights.Queue, Priority: w.Priority, Headers: w.Headers, Tags: w.Tags, Group: j.own(w.Group, maxGroup),
		StartWithin: time.Duration(w.StartWithin), FinishWithin: time.Duration(w.FinishWithin), OnExpire: errand.State(w.OnExpire),
		Origin: errand.Origin{Device: j.device, ID: hex.EncodeToString(w.ID[:])},
	}
	if !w.Made.IsZero() {
		o.Headers = maps.Clone(w.Headers)
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		o.Headers[MadeHeader] = w.Made.Format(time.RFC3339Nano)
	}
	job := errand.NewJob{Args: errand.RawArgs{OfKind: w.Kind, JSON: w.Args}, Options: o}
	if r := &j.rights; r.Kinds != nil && !slices.Contains(r.Kinds, w.Kind) {
		return job, refusedField("kind", w.Kind, "must be a kind that the device may send")
	} else if (r.MinPriority != 0 || r.MaxPriority != 0) && (w.Priority < r.MinPriority || w.Priority > r.MaxPriority) {
		return job, refusedField("priority", w.Priority, fmt.Sprintf("must be between %d and %d for the device", r.MinPriority, r.MaxPriority))
	}
	u := w.Unique
	if u == nil {
		return job, nil
	}
	mode := slices.Index(conflicts, u.OnConflict)
	if mode < 0 {
		return job, refusedField("unique.on_conflict", u.OnConflict, "must be one of "+strings.Join(conflicts[1:], ", "))
	}
	o.Unique = &errand.Unique{Key: j.own(u.Key, maxUnique), Forever: u.Forever, For: time.Duration(u.For), OnConflict: errand.OnConflict{
		Mode: errand.ConflictMode(mode), Quiet: time.Duration(u.Quiet), MaxWait: time.Duration(u.MaxWait), Fresh: u.Fresh,
	}}
	return job, nil
}

// conflicts are the names of modes, by [errand.ConflictMode].
var conflicts = []string{errand.Keep: "", errand.Replace: "replace", errand.Debounce: "debounce", errand.After: "after", errand.Fail: "fail"}

func refusedField(field string, value any, limit string) error {
	return &errand.FieldError{Field: field, Value: value, Limit: limit}
}

// own returns a unique key or a group as that of this device. It begins with the name of the device
// and a comma, which no name has in it. If that is too long it is hashed.
func (j *judge) own(key string, most int) string {
	shared := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	if key == "" || slices.ContainsFunc(j.rights.SharedKeys, shared) {
		return key
	}
	own := j.device + "," + key
	if len(own) <= most {
		return own
	}
	sum := sha256.Sum256([]byte(key))
	return j.device + "," + hex.EncodeToString(sum[:])
}

// count adds the verdicts on a send.
func (c *Counts) count(verdicts []ratchet.Verdict, bytes int64) {
	for _, v := range verdicts {
		switch v.Outcome {
		case ratchet.Enqueued:
			c.Enqueued++
		case ratchet.Duplicate:
			c.Duplicates++
		case ratchet.Refused:
			c.Refused++
		default:
			c.Later++
		}
	}
	c.Bytes += bytes
}

const secondsADay = 24 * 60 * 60

// spend counts the bytes of a send if a day has at most most, and is zero, or returns after how many seconds
// the next day begins if the device has sent these already.
func (d *deviceRow) spend(most, bytes int64, now time.Time) (wait int) {
	if most <= 0 || bytes == 0 {
		return 0
	}
	day := now.Unix() / secondsADay
	if d.Day != day { // also a day that is over because the clock was set back
		d.Day, d.DayBytes = day, 0
	}
	if d.DayBytes >= most {
		return int((day+1)*secondsADay - now.Unix())
	}
	d.DayBytes += bytes
	return 0
}
