package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// filterFlags are the flags that choose jobs.
type filterFlags struct {
	queue, kind, group         string
	tag, reason, error         string
	states                     []string
	endedFrom, endedBefore     string
	createdFrom, createdBefore string
	dueFrom, dueBefore         string
	olderThan                  time.Duration
	cause                      int64
	parent                     queue.ID
	origin                     queue.Origin
	all                        bool
}

// add adds the flags that choose among jobs in some states.
func (f *filterFlags) add(cmd *cobra.Command, states ...queue.State) {
	flags := cmd.Flags()
	can := func(of ...queue.State) bool {
		return slices.ContainsFunc(of, func(s queue.State) bool { return slices.Contains(states, s) })
	}
	laneFlags(cmd, &f.queue, &f.kind)
	flags.StringVar(&f.group, "group", "", "only of this group of --queue")
	flags.StringVar(&f.tag, "tag", "", "only with this tag")
	flags.Func("parent", "only those that were enqueued with the end of the job with this `ID`", func(s string) (err error) {
		f.parent, err = parseID(s)
		return err
	})
	originFlag(cmd, &f.origin, "only those that were passed on by a device, and if there is an ID those that are called so there, as `DEVICE[,ID]`")
	flags.StringVar(&f.error, "error", "", "only with this text in the last error")
	flags.StringVar(&f.createdFrom, "created-from", "", "only enqueued at this time or later")
	flags.StringVar(&f.createdBefore, "created-before", "", "only enqueued before this time")
	if len(states) > 1 {
		flags.StringSliceVar(&f.states, "state", nil, fmt.Sprintf("only in this state: %s (repeatable)", strings.Trim(fmt.Sprint(states), "[]")))
	}
	if can(queue.Scheduled, queue.Ready) {
		flags.StringVar(&f.dueFrom, "due-from", "", "only due at this time or later")
		flags.StringVar(&f.dueBefore, "due-before", "", "only due before this time")
	}
	if can(queue.Done, queue.Cancelled, queue.Expired, queue.Dead) {
		flags.StringVar(&f.endedFrom, "ended-from", "", "only ended at this time or later")
		flags.StringVar(&f.endedBefore, "ended-before", "", "only ended before this time")
		flags.DurationVar(&f.olderThan, "older-than", 0, "only ended so long ago")
	}
	if can(queue.Dead) {
		flags.StringVar(&f.reason, "reason", "", "only dead for this reason: exhausted, permanent, crashed, snoozed, unavailable, decode, expired or deadline")
		flags.Func("cause", "only dead of this cause, an `ID` of errand dead groups", func(s string) (err error) {
			if f.cause, err = strconv.ParseInt(s, 10, 64); err != nil || f.cause < 1 {
				err = errors.New("must be the ID of a cause")
			}
			return err
		})
	}
}

// filter returns what the flags choose.
func (f *filterFlags) filter() (queue.JobFilter, error) {
	out := queue.JobFilter{
		Queue: f.queue, Kind: f.kind, Group: f.group, Tag: f.tag, Reason: queue.Reason(f.reason), Error: f.error, OlderThan: f.olderThan, All: f.all,
		Cause: f.cause, Parent: f.parent, Origin: f.origin,
	}
	for _, s := range f.states {
		out.States = append(out.States, queue.State(s))
	}
	for _, t := range []struct {
		flag, value string
		to          *time.Time
	}{
		{"created-from", f.createdFrom, &out.CreatedFrom}, {"created-before", f.createdBefore, &out.CreatedBefore},
		{"due-from", f.dueFrom, &out.DueFrom}, {"due-before", f.dueBefore, &out.DueBefore},
		{"ended-from", f.endedFrom, &out.EndedFrom}, {"ended-before", f.endedBefore, &out.EndedBefore},
	} {
		if t.value == "" {
			continue
		}
		at, err := parseTime(t.value)
		if err != nil {
			return out, fmt.Errorf("--%s: %w", t.flag, err)
		}
		*t.to = at
	}
	return out, nil
}

// originFlag adds a flag that names where jobs came from.
func originFlag(cmd *cobra.Command, o *queue.Origin, usage string) {
	cmd.Flags().Func("origin", usage, func(s string) error {
		device, id, named := strings.Cut(s, ",")
		if s == "" { // as given says of others, which does not see it
			return errors.New("must not be empty")
		}
		if named && id == "" {
			return errors.New("no ID comes after the comma: without one, leave the comma out")
		}
		*o = queue.Origin{Device: device, ID: id}
		return nil
	})
}

// originText returns where a job came from as originFlag takes it, and nothing if it came from nowhere.
func originText(o queue.Origin) string {
	if o == (queue.Origin{}) {
		return ""
	}
	return o.Device + "," + o.ID
}
