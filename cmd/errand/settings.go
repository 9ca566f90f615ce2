package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
)

func setCommand(t *tool) *cobra.Command {
	var kind, full, dead string
	var jobs, members int
	var bytes int64
	var windows, free, throttle func(*queue.Settings)
	var keep time.Duration
	var ordered, buried func(*queue.Settings) error
	cmd := &cobra.Command{
		Use:   "set FILE [QUEUE]",
		Short: "Set caps, throttles, order, and how long finished jobs are kept",
		Long: `Set what all processes obey for a queue, for the kind that --kind names, for that kind
in the queue, or, without either, for the whole file. What no flag names stays as it is.
Zero takes that one setting back.

Caps are of a queue or of the whole file: when as many jobs wait, --when-full says what
happens to a new one. It is refused (refuse), or waiting jobs are deleted to make room:
those due for longest (evict-oldest), or those of the lowest priority first
(evict-lowest). With --when-dead-full evict-oldest the oldest dead letters beyond
--max-dead are deleted, also of a kind in a queue.

Jobs of a group of the queue run one at a time, or as many as --group-limit says. They
wait for a dead one; with --dead-head pass they do not. --starts is how many attempts of
a queue, or of a kind in all queues, begin in a second, or in the time that --per says,
in all processes together.

A worker of a program may set the same when it starts.`,
		Example: `  errand queues set jobs.db readings --max-jobs 50000 --when-full evict-oldest
  errand queues set jobs.db --max-bytes 100000000
  errand queues set jobs.db --min-free 50000000
  errand queues set jobs.db readings --max-dead 1000 --when-dead-full evict-oldest
  errand queues set jobs.db --kind reading --retention 10m
  errand queues set jobs.db uploads --group-limit 3
  errand queues set jobs.db webhook/acme --starts 10 --per 1m --burst 3`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			lane := laneArgs(args, kind)
			var s queue.Settings
			flags := cmd.Flags()
			if flags.Changed("max-jobs") {
				s.MaxJobs = &jobs
			}
			if flags.Changed("max-bytes") {
				s.MaxBytes = &bytes
			}
			if flags.Changed("retention") {
				s.Retention = &keep
			}
			if flags.Changed("group-limit") {
				s.GroupLimit = &members
			}
			if flags.Changed("dead-head") {
				s.DeadHead = new(queue.DeadHead)
				if err := s.DeadHead.UnmarshalText([]byte(dead)); err != nil {
					return err
				}
			}
			windows(&s)
			if err := errors.Join(ordered(&s), buried(&s)); err != nil {
				return err
			}
			free(&s)
			throttle(&s)
			if flags.Changed("when-full") {
				s.WhenFull = new(queue.WhenFull)
				if err := s.WhenFull.UnmarshalText([]byte(full)); err != nil {
					return err
				}
			}
			if s == (queue.Settings{}) {
				return errors.New("nothing to set: name at least one setting, such as --max-jobs; errand help queues set lists them")
			}
			var all []setting
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				if err := q.Configure(cmd.Context(), lane, s); err != nil {
					return err
				}
				all, err = settings(cmd.Context(), q)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string]any{"settings": all}, func(p *printer) { t.printSettings(p, all) })
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "of this kind")
	cmd.Flags().IntVar(&jobs, "max-jobs", 0, "how many jobs may wait")
	cmd.Flags().Int64Var(&bytes, "max-bytes", 0, "how many bytes they may count for")
	cmd.Flags().StringVar(&full, "when-full", "", "refuse, evict-oldest or evict-lowest")
	cmd.Flags().DurationVar(&keep, "retention", 0, "how long finished jobs are kept, as in 2h; below zero: not at all")
	cmd.Flags().IntVar(&members, "group-limit", 0, "how many jobs of a group of the queue run at a time; above 1 in no order")
	cmd.Flags().StringVar(&dead, "dead-head", "", "whether a dead job blocks the others of its group: block or pass")
	windows, free, throttle = windowFlags(cmd.Flags()), freeFlags(cmd.Flags()), startsFlags(cmd.Flags())
	ordered, buried = orderFlags(cmd.Flags()), buriedFlags(cmd.Flags())
	completeFlag(cmd, "kind", kindsOf)
	completeArgs(cmd, queuesOf)
	return cmd
}

// windowFlags adds the flags of windows, and returns what puts those that are given into
// settings.
func windowFlags(f *pflag.FlagSet) func(*queue.Settings) {
	start := f.Duration("start-within", 0, "how long after they are due new jobs may begin")
	finish := f.Duration("finish-within", 0, "how long after they are due an attempt of new jobs may begin")
	expire := f.String("on-expire", "", "what becomes of jobs that have not begun: expired, dead, or none to take back what is set")
	return func(s *queue.Settings) {
		setGiven(f, "start-within", &s.StartWithin, start)
		setGiven(f, "finish-within", &s.FinishWithin, finish)
		if f.Changed("on-expire") {
			if s.OnExpire = new(queue.State(*expire)); *expire == "none" {
				*s.OnExpire = ""
			}
		}
	}
}

// freeFlags adds the flags of free space, as windowFlags does.
func freeFlags(f *pflag.FlagSet) func(*queue.Settings) {
	least := f.Int64("min-free", 0, "how many bytes of the file system must be free for new jobs")
	priority := f.Int("min-free-priority", 0, "the highest priority of jobs that are refused otherwise")
	return func(s *queue.Settings) {
		setGiven(f, "min-free", &s.MinFree, least)
		setGiven(f, "min-free-priority", &s.MinFreePriority, priority)
	}
}

// startsFlags adds the flags of a shared throttle, as windowFlags does.
func startsFlags(f *pflag.FlagSet) func(*queue.Settings) {
	starts := f.Int("starts", 0, "how many attempts of a queue or kind begin in a second, or in --per, in all processes together")
	per := f.Duration("per", 0, "the time of --starts, as in 1m; zero: a second")
	burst := f.Int("burst", 0, "how many begin at once after a pause; zero: a tenth of a second's worth, and at least 2")
	return func(s *queue.Settings) {
		setGiven(f, "starts", &s.Starts, starts)
		setGiven(f, "per", &s.StartsPer, per)
		setGiven(f, "burst", &s.StartsBurst, burst)
	}
}

// setGiven sets a setting to the value of a flag, if that is given.
func setGiven[T any](f *pflag.FlagSet, flag string, setting **T, value *T) {
	if f.Changed(flag) {
		*setting = value
	}
}

// startsText shows the shared throttle of settings.
func startsText(s *queue.Settings) string {
	if s.Starts == nil {
		return "-"
	}
	per := time.Second
	if s.StartsPer != nil {
		per = *s.StartsPer
	}
	out := fmt.Sprintf("%d in %v", *s.Starts, per)
	if s.StartsBurst != nil {
		out += fmt.Sprintf(", %d at once", *s.StartsBurst)
	}
	return out
}

// buriedFlags adds the flags of dead letters, as windowFlags does.
func buriedFlags(f *pflag.FlagSet) func(*queue.Settings) error {
	most := f.Int("max-dead", 0, "how many dead letters there may be")
	full := f.String("when-dead-full", "", "what becomes of dead letters beyond that: keep or evict-oldest")
	return func(s *queue.Settings) error {
		setGiven(f, "max-dead", &s.MaxDead, most)
		if !f.Changed("when-dead-full") {
			return nil
		}
		s.WhenDeadFull = new(queue.WhenDeadFull)
		return s.WhenDeadFull.UnmarshalText([]byte(*full))
	}
}

// buriedCells shows the dead letters of settings.
func buriedCells(s *setting) []cell {
	if s.Of.MaxDead == nil && s.Of.WhenDeadFull == nil {
		return []cell{number(s.More.Dead), text("-"), text("-"), number(s.More.DeadEvicted)}
	}
	most, full := "-", queue.KeepDead
	if s.Of.MaxDead != nil {
		most = strconv.Itoa(*s.Of.MaxDead)
	}
	if s.Of.WhenDeadFull != nil {
		full = *s.Of.WhenDeadFull
	}
	return []cell{number(s.More.Dead), text(most), text(full.String()), number(s.More.DeadEvicted)}
}

// freeText shows the free space of settings.
func freeText(s *queue.Settings) string {
	if s.MinFree == nil {
		return "-"
	}
	priority := 0
	if s.MinFreePriority != nil {
		priority = *s.MinFreePriority
	}
	return fmt.Sprintf("%d up to priority %d", *s.MinFree, priority)
}

// windowsText shows the windows of settings.
func windowsText(s *queue.Settings) string {
	var all []string
	if s.StartWithin != nil {
		all = append(all, "start "+s.StartWithin.String())
	}
	if s.FinishWithin != nil {
		all = append(all, "finish "+s.FinishWithin.String())
	}
	if s.OnExpire != nil {
		all = append(all, "then "+string(*s.OnExpire))
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// setting are the settings of a queue, a kind, both, or the whole file, with how much of
// its caps is in use.
type setting = seconds.Joined[queue.LaneSettings, queue.CapUse]

// settings returns all settings.
func settings(ctx context.Context, q *queue.Queue) ([]setting, error) {
	all, err := q.Settings(ctx)
	out := []setting{}
	if err != nil || len(all) == 0 {
		return out, err
	}
	stats, err := q.Stats(ctx)
	for _, l := range all {
		out = append(out, seconds.Join(l, l.CapUse(stats)))
	}
	return out, err
}

func (t *tool) printSettings(p *printer, all []setting) {
	if len(all) == 0 {
		p.printf("nothing is set\n")
		return
	}
	list := table{head: []string{"SET FOR QUEUE", "KIND", " WAITING", " MAX JOBS", " BYTES", " MAX BYTES", "WHEN FULL", " EVICTED", "RETENTION"}}
	groups := slices.ContainsFunc(all, func(s setting) bool { return s.Of.GroupLimit != nil || s.Of.DeadHead != nil })
	if groups {
		list.head = append(list.head, " GROUP LIMIT", "DEAD HEAD")
	}
	windows := slices.ContainsFunc(all, func(s setting) bool { return windowsText(&s.Of.Settings) != "-" })
	if windows {
		list.head = append(list.head, "WINDOWS")
	}
	orders := slices.ContainsFunc(all, func(s setting) bool { return s.Of.Order != nil || s.Of.Aging != nil })
	if orders {
		list.head = append(list.head, "ORDER", "AGING")
	}
	starts := slices.ContainsFunc(all, func(s setting) bool { return s.Of.Starts != nil })
	if starts {
		list.head = append(list.head, "STARTS")
	}
	free := slices.ContainsFunc(all, func(s setting) bool { return s.Of.MinFree != nil })
	if free {
		list.head = append(list.head, "MIN FREE")
	}
	buried := slices.ContainsFunc(all, func(s setting) bool { return s.Of.MaxDead != nil || s.Of.WhenDeadFull != nil })
	if buried {
		list.head = append(list.head, " DEAD", " MAX DEAD", "WHEN DEAD FULL", " DEAD EVICTED")
	}
	for i := range all {
		s := &all[i]
		most, bytes, full, keep := "-", "-", "-", "-"
		if s.Of.MaxJobs != nil {
			most = strconv.Itoa(*s.Of.MaxJobs)
		}
		if s.Of.MaxBytes != nil {
			bytes = strconv.FormatInt(*s.Of.MaxBytes, 10)
		}
		switch {
		case s.Of.WhenFull != nil:
			full = s.Of.WhenFull.String()
		case s.Of.MaxJobs != nil || s.Of.MaxBytes != nil:
			full = queue.Refuse.String()
		}
		if s.Of.Retention != nil {
			if keep = s.Of.Retention.String(); *s.Of.Retention < 0 {
				keep = "none"
			}
		}
		cells := []cell{
			text(cmp.Or(s.Of.Queue, "(all)")), text(cmp.Or(s.Of.Kind, "(all)")), number(s.More.Jobs), text(most), number(s.More.Bytes), text(bytes), text(full), number(s.More.Evicted), text(keep),
		}
		if groups {
			members, dead := "-", "-"
			if s.Of.GroupLimit != nil {
				members = strconv.Itoa(*s.Of.GroupLimit)
			}
			if s.Of.DeadHead != nil {
				dead = s.Of.DeadHead.String()
			}
			cells = append(cells, text(members), text(dead))
		}
		if windows {
			cells = append(cells, text(windowsText(&s.Of.Settings)))
		}
		if orders {
			cells = append(cells, orderCells(&s.Of.Settings)...)
		}
		if starts {
			cells = append(cells, text(startsText(&s.Of.Settings)))
		}
		if free {
			cells = append(cells, text(freeText(&s.Of.Settings)))
		}
		if buried {
			cells = append(cells, buriedCells(s)...)
		}
		list.add(cells...)
	}
	list.print(p, t.out)
}
