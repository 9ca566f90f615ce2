package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/relay/internal/ratchet"
)

// ID is a [ratchet.ID] that JSON has in hex.
type ID ratchet.ID

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *ID) UnmarshalText(text []byte) error {
	if !readHex(id[:], string(text)) {
		return wrong("id", string(text), "must be %d bytes in lower-case hex", len(id))
	}
	return nil
}

// Job is a job as it travels: without its queue, delays, policy and timeout. The zero value of a
// field means that the job has none. Args are any JSON. Made is in UTC. Windows are what is left of them.
type Job struct {
	ID           ID                `json:"id"`
	Kind         string            `json:"kind"`
	Args         json.RawMessage   `json:"args"`
	Headers      map[string]string `json:"headers,omitempty"` // the trace among them
	Priority     int               `json:"priority,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Group        string            `json:"group,omitempty"`
	Unique       *Unique           `json:"unique,omitempty"`
	Made         time.Time         `json:"made,omitzero"`
	StartWithin  seconds.Duration  `json:"start_within_s,omitempty"`
	FinishWithin seconds.Duration  `json:"finish_within_s,omitempty"`
	OnExpire     string            `json:"on_expire,omitempty"` // dead or expired
}

// Unique is a unique key, and what becomes of a job whose key is held. The fields mean what those of
// errand.Unique and errand.OnConflict do.
type Unique struct {
	Key        string           `json:"key"`
	Forever    bool             `json:"forever,omitempty"`
	For        seconds.Duration `json:"for_s,omitempty"`
	OnConflict string           `json:"on_conflict,omitempty"` // replace, debounce, after or fail
	Quiet      seconds.Duration `json:"quiet_s,omitempty"`
	MaxWait    seconds.Duration `json:"max_wait_s,omitempty"`
	Fresh      bool             `json:"fresh,omitempty"`
}

// check returns what is wrong with jobs. It looks at what a queue bounds before anything else; the rest is
// found when the queue judges the job, which refuses that job alone.
func check(jobs []Job) error {
	if err := atMost("jobs", len(jobs), MaxJobs); err != nil {
		return err
	}
	seen := make(map[ID]bool, len(jobs))
	for i, j := range jobs {
		if err := j.check(); err != nil {
			err.Field = fmt.Sprintf("jobs[%d].%s", i, err.Field)
			return err
		}
		if seen[j.ID] {
			return wrong(fmt.Sprintf("jobs[%d].id", i), hex.EncodeToString(j.ID[:]), "must not be there twice")
		}
		seen[j.ID] = true
	}
	return nil
}

// Check returns what is wrong with a job, a [FieldError].
func (j *Job) Check() error {
	if err := j.check(); err != nil {
		return err
	}
	return nil
}

func (j *Job) check() *FieldError {
	window := min(j.StartWithin, j.FinishWithin)
	tag := slices.IndexFunc(j.Tags, func(tag string) bool { return tag == "" || len(tag) > maxTag })
	switch {
	case j.ID == ID{}:
		return wrong("id", 0, "must be there, and not zero")
	case !IsName(j.Kind):
		return wrong("kind", j.Kind, NameForm)
	case len(j.Args) == 0:
		return wrong("args", "", "must be there")
	case len(j.Group) > maxGroup:
		return wrong("group", j.Group, "must be at most %d bytes", maxGroup)
	case len(j.Tags) > maxTags:
		return wrong("tags", len(j.Tags), "must be at most %d", maxTags)
	case tag >= 0:
		return wrong(fmt.Sprintf("tags[%d]", tag), j.Tags[tag], "must be 1 to %d bytes", maxTag)
	case j.Unique != nil && (j.Unique.Key == "" || len(j.Unique.Key) > maxUnique):
		return wrong("unique.key", j.Unique.Key, "must be 1 to %d bytes", maxUnique)
	case j.Made.Year() < 0 || j.Made.Year() > 9999:
		return wrong("made", j.Made, "must be in the years 0 to 9999 of UTC")
	case window < 0:
		return wrong("start_within_s, finish_within_s", time.Duration(window), "must not be negative")
	}
	return nil
}

// decodeJobs decodes the body of a send.
func decodeJobs(body []byte, l Limits) ([]Job, error) {
	if len(body) == 0 {
		return nil, nil
	}
	// Lists and maps of nothing take much more memory than text, so these are bounded first.
	type bounded struct {
		Job
		Tags    json.RawMessage `json:"tags"`
		Headers json.RawMessage `json:"headers"`
	}
	read, err := list[bounded]("jobs", body, MaxJobs)
	if err != nil {
		return nil, err
	}
	jobs := slices.Grow([]Job(nil), len(read))
	for i, b := range read {
		field := fmt.Sprintf("jobs[%d].", i)
		if len(b.Tags) > 0 {
			if b.Job.Tags, err = list[string](field+"tags", b.Tags, maxTags); err != nil {
				return nil, err
			}
		}
		if err := atMost(field+"headers", len(b.Headers), l.Headers); err != nil {
			return nil, err
		}
		if len(b.Headers) > 0 {
			if err := decode(field+"headers", b.Headers, &b.Job.Headers); err != nil {
				return nil, err
			}
		}
		if len(b.Job.Headers) == 0 {
			b.Job.Headers = nil
		}
		b.Made = b.Made.UTC()
		jobs = append(jobs, b.Job)
	}
	return jobs, check(jobs)
}
