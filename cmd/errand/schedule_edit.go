package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
)

// scheduleFlags are those of errand schedules add.
type scheduleFlags struct {
	file, name, spec string
	zone             string
	kind, queue      string
	args             string
	missed, overlap  string
	jitter, timeout  time.Duration
	priority         int
	group, unique    string
	headers, tags    []string
	policy           string
}

func scheduleAddCommand(t *tool) *cobra.Command {
	o := &scheduleFlags{}
	cmd := &cobra.Command{
		Use:   "add FILE NAME SPEC --kind KIND [flags]",
		Short: "Add a schedule, or change the one of that name",
		Long: `Add a schedule, or change the one of that name to what is said here. A schedule that is
the same already stays as it is. Flags that are not given count as for a new one; the
answer names what has changed. A new schedule, or one with another spec or zone, begins
with the first tick after now. A paused one stays paused.

SPEC is five fields of cron (minute, hour, day of month, month, day of week), six with
the second first, @yearly, @monthly, @weekly, @daily, @hourly, or @every with a
duration. Any worker of the file fires it. A program leaves schedules of other names
alone; only Schedules.Keep removes all but its own.`,
		Example: `  errand schedules add jobs.db nightly '0 3 * * *' --zone Europe/Helsinki --kind report --args '{"of":"sales"}'
  errand schedules add jobs.db poll '@every 90s' --kind poll --missed skip --overlap skip`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return fmt.Errorf("takes FILE NAME SPEC, got %d words: the spec is one of them, in quotes, as '0 3 * * *'", len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file, o.name, o.spec = args[0], args[1], args[2]
			return o.run(cmd.Context(), t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.kind, "kind", "", "the kind of its jobs")
	f.StringVar(&o.queue, "queue", "default", "the queue of its jobs")
	f.StringVar(&o.args, "args", "{}", "the args of its jobs, as JSON")
	f.StringVar(&o.zone, "zone", "UTC", "the time zone of the spec, as Europe/Helsinki")
	f.StringVar(&o.missed, "missed", "one", "ticks while no worker ran: one (a job for all of them), skip, or the number of jobs at most")
	f.StringVar(&o.overlap, "overlap", "allow", "a tick while a job of the schedule is not over: allow or skip")
	f.DurationVar(&o.jitter, "jitter", 0, "delay each job by less than this")
	f.IntVar(&o.priority, "priority", 0, "higher first, from -100 to 100")
	f.DurationVar(&o.timeout, "timeout", 0, "how long each attempt may take")
	f.StringVar(&o.group, "group", "", "run its jobs one at a time with others of this group")
	f.StringVar(&o.unique, "unique", "", "skip a tick if another job of the kind has this key")
	f.StringArrayVar(&o.headers, "header", nil, "a header, as name=value; may be repeated")
	f.StringArrayVar(&o.tags, "tag", nil, "a tag to find its jobs by; may be repeated")
	f.StringVar(&o.policy, "policy", "", "a preset or a file with the delivery policy of its jobs, see: errand policy")
	completeArgs(cmd, nil)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

// schedule returns the schedule that the flags say. What the queue checks is left to it.
func (o *scheduleFlags) schedule(t *tool) (s queue.Schedule, err error) {
	if o.kind == "" {
		return s, errors.New("--kind is missing: name the kind of the jobs")
	}
	if err := checkLine([]byte(o.args)); err != nil {
		return s, fmt.Errorf("--args: %w", err)
	}
	args := queue.RawArgs{OfKind: o.kind, JSON: json.RawMessage(o.args)}
	job := &queue.JobOptions{Queue: o.queue, Priority: o.priority, Timeout: o.timeout, Group: o.group, Tags: o.tags}
	if o.unique != "" {
		job.Unique = &queue.Unique{Key: o.unique}
	}
	if job.Headers, err = jobHeaders(o.headers); err != nil {
		return s, err
	}
	if o.policy != "" {
		d, err := readDelivery(t.in, o.policy, policy.ProfileQueue)
		if err != nil {
			return s, err
		}
		job.Policy = d
	}
	s = queue.Schedule{Name: o.name, Spec: o.spec, Zone: o.zone, Args: args, Options: job, Jitter: o.jitter}
	switch n, notNumber := strconv.Atoi(o.missed); {
	case o.missed == "one":
	case o.missed == "skip":
		s.Missed = queue.MissedSkip
	case notNumber == nil && n > 0:
		s.Missed = queue.MissedAll(n)
	default:
		return s, fmt.Errorf("--missed %q: must be one, skip or a number from 1 to 1000", o.missed)
	}
	switch o.overlap {
	case "allow":
	case "skip":
		s.Overlap = queue.OverlapSkip
	default:
		return s, fmt.Errorf("--overlap %q: must be allow or skip", o.overlap)
	}
	return s, nil
}

func (o *scheduleFlags) run(ctx context.Context, t *tool) error {
	s, err := o.schedule(t)
	if err != nil {
		return err
	}
	var was, is queue.ScheduleInfo
	found := false
	err = t.writing(ctx, o.file, false, func(q *queue.Queue) error {
		// One that cannot be read is replaced all the same, and Schedule says what else is wrong.
		was, err = q.Schedules().Get(ctx, s.Name)
		found = was.Name != ""
		if err := q.Schedule(ctx, s); err != nil {
			return err
		}
		is, err = q.Schedules().Get(ctx, s.Name)
		return err
	})
	if err != nil {
		return err
	}
	became := struct {
		Result  string   `json:"result"`
		Changed []string `json:"changed,omitempty"`
	}{Result: "added"}
	if found {
		became.Result = "as it was"
		was.Next, was.LastTick, was.LastJob = is.Next, is.LastTick, is.LastJob
		if became.Changed = differing(reflect.ValueOf(was), reflect.ValueOf(is)); len(became.Changed) > 0 {
			became.Result = "changed"
		}
	}
	return t.show(seconds.Join(is, became), func(p *printer) {
		result := became.Result
		if len(became.Changed) > 0 {
			result += " (" + strings.Join(became.Changed, ", ") + ")"
		}
		next := "paused"
		if !is.Paused {
			next = "no tick before the year 10000"
			if len(is.Next) > 0 {
				next = "next " + is.Next[0].Format("2006-01-02 15:04:05 MST")
			}
		}
		p.printf("%s: %s, %s\n", safe(is.Name), result, next)
	})
}

// differing returns the names of the fields in which two schedules differ, those of the
// options of their jobs among them, as JSON and flags have them.
func differing(a, b reflect.Value) (names []string) {
	for i := range a.NumField() {
		x, y, field := a.Field(i), b.Field(i), a.Type().Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		if field.Type == reflect.TypeFor[queue.JobOptions]() {
			names = append(names, differing(x, y)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, cmp.Or(strings.TrimSuffix(name, "_s"), strings.ToLower(field.Name)))
	}
	return names
}

// jobHeaders returns the headers that flags name, as name=value.
func jobHeaders(flags []string) (headers map[string]string, err error) {
	for _, h := range flags {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: must be name=value", h)
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[name] = value
	}
	return headers, nil
}

func scheduleRemoveCommand(t *tool) *cobra.Command {
	var yes bool
	cmd := scheduleVerb(t, "rm", "Delete a schedule with its history",
		`Delete a schedule with its history. Jobs that it has enqueued go on. A program that
declares the schedule adds it again at its next start. It asks before, or wants --yes.`,
		func(ctx context.Context, s *queue.Schedules, name string) (any, string, error) {
			return map[string]string{"removed": name}, "deleted", s.Remove(ctx, name)
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		return t.confirm(yes, "delete schedule %s with its history", safe(args[1]))
	}
	cmd.Example = "  errand schedules rm jobs.db nightly --yes"
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
