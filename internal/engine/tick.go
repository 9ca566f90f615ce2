package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

// Headers of a job that a schedule has enqueued.
const (
	HeaderSchedule = "errand-schedule" // the name of the schedule
	HeaderTick     = "errand-tick"     // RFC 3339, in the schedule's zone
)

// TickJob returns the job of a tick that is fired at now. The job is due at the
// tick plus the schedule's jitter, and has the schedule's headers and two of its
// own. The tick is in the schedule's zone, as a [schedule.Spec] returns it. The
// error is about headers of the schedule that do not decode.
//
// If the job is due after now it has a Delay, not a DueAt: a job of a tick in a
// wrong year must not stay there when the clock is right again.
func TickJob(s *storage.Schedule, tick, now time.Time) (storage.NewJob, error) {
	headers, err := jobHeaders(s)
	if err != nil {
		return storage.NewJob{}, err
	}
	return tickJob(s, headers, tick, now), nil
}

// tickJob is TickJob with the decoded headers of the schedule, to which it adds.
func tickJob(s *storage.Schedule, headers map[string]string, tick, now time.Time) storage.NewJob {
	headers[HeaderSchedule], headers[HeaderTick] = s.Name, tick.Format(time.RFC3339)
	job := s.Job
	job.Headers, _ = json.Marshal(headers) // strings can always be marshalled
	due := tick.Add(schedule.JitterFor(s.Name, tick, s.Jitter))
	if job.Delay = max(due.Sub(now), 0); job.Delay == 0 {
		job.DueAt = due
	}
	return job
}

func jobHeaders(s *storage.Schedule) (map[string]string, error) {
	headers := map[string]string{}
	if s.Job.Headers == nil {
		return headers, nil
	}
	if err := json.Unmarshal(s.Job.Headers, &headers); err != nil {
		return nil, fmt.Errorf("headers of schedule %q: %w", s.Name, err)
	}
	if headers == nil { // null
		headers = map[string]string{}
	}
	return headers, nil
}
