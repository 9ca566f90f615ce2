package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
)

func schedulesCommand(t *tool) *cobra.Command {
	return group("schedules", "Look at schedules, add and delete them, pause them, or run them now",
		`Look at recurring jobs. Programs declare them; here they are listed, added, deleted,
paused, resumed, and fired once more.`,
		schedulesListCommand(t), scheduleShowCommand(t), scheduleAddCommand(t), scheduleRemoveCommand(t), schedulePauseCommand(t), scheduleResumeCommand(t), scheduleRunCommand(t))
}

func schedulesListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls FILE",
		Short:   "List schedules with their next ticks",
		Example: "  errand schedules ls jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []queue.ScheduleInfo{}
			var broken error // a schedule that cannot be read here, beside the list
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				list, err := q.Schedules().List(cmd.Context())
				all = append([]queue.ScheduleInfo{}, list...)
				if len(list) > 0 {
					broken, err = err, nil
				}
				return err
			})
			if err != nil {
				return err
			}
			return errors.Join(broken, t.show(map[string][]queue.ScheduleInfo{"schedules": all}, func(p *printer) {
				if len(all) == 0 {
					p.printf("no schedules\n")
					return
				}
				list := table{head: []string{"NAME", "SPEC", "ZONE", "KIND", "QUEUE", "NEXT", "LAST"}}
				for _, s := range all {
					next, last := text("-"), "-"
					if len(s.Next) > 0 {
						next = text(s.Next[0].Format("2006-01-02 15:04:05 MST"))
					}
					if s.Paused {
						next = text("paused").in(yellow)
					}
					if !s.LastTick.IsZero() {
						last = s.LastTick.Format("2006-01-02 15:04:05 MST")
					}
					list.add(text(s.Name), text(s.Spec), text(s.Zone), text(s.Kind), text(s.Options.Queue), next, text(last))
				}
				list.print(p, t.out)
			}))
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func scheduleShowCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show FILE NAME",
		Short:   "Show a schedule with its next ticks and what became of the last ones",
		Example: "  errand schedules show jobs.db nightly",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s queue.ScheduleInfo
			var past struct {
				History []queue.Tick `json:"history,omitempty"`
			}
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) (err error) {
				if s, err = q.Schedules().Get(cmd.Context(), args[1]); err == nil {
					past.History, err = q.Schedules().History(cmd.Context(), args[1])
				}
				return err
			})
			if err != nil {
				return err
			}
			return t.show(seconds.Join(s, past), func(p *printer) { t.printSchedule(p, &s, past.History) })
		},
	}
	completeArgs(cmd, schedulesOf)
	return cmd
}

func (t *tool) printSchedule(p *printer, s *queue.ScheduleInfo, history []queue.Tick) {
	field := func(name, value string) { p.printf("%-8s %s\n", name, value) }
	field("name", safe(s.Name))
	field("spec", safe(s.Spec)+" in "+safe(s.Zone))
	field("jobs", fmt.Sprintf("kind %s in queue %s, args %s", safe(s.Kind), safe(s.Options.Queue), jsonText(s.Args)))
	field("missed", string(s.Missed))
	field("overlap", string(s.Overlap))
	if s.Jitter > 0 {
		field("jitter", lasting(s.Jitter))
	}
	if s.Paused {
		field("paused", "until it is resumed")
	}
	for _, next := range s.Next {
		field("next", next.Format("2006-01-02 15:04:05 MST"))
	}
	if len(history) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{"TICK", " TICKS", "BECAME", "JOB"}}
	for _, h := range history {
		job := "-"
		if !h.Job.IsZero() {
			job = h.Job.String()
		}
		list.add(text(h.At.Format("2006-01-02 15:04:05 MST")), number(h.N), text(string(h.Taken)), text(job))
	}
	list.print(p, t.out)
}

// scheduleVerb returns a verb that does something to one schedule, and says what became
// of it.
func scheduleVerb(t *tool, use, short, long string, do func(ctx context.Context, s *queue.Schedules, name string) (any, string, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use + " FILE NAME",
		Short:   short,
		Long:    long,
		Example: "  errand schedules " + use + " jobs.db nightly",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var result any
			var said string
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				result, said, err = do(cmd.Context(), q.Schedules(), args[1])
				return err
			})
			if err != nil {
				return err
			}
			return t.show(result, func(p *printer) { p.printf("%s: %s\n", safe(args[1]), said) })
		},
	}
	completeArgs(cmd, schedulesOf)
	return cmd
}

func schedulePauseCommand(t *tool) *cobra.Command {
	return scheduleVerb(t, "pause", "Stop a schedule from firing", "Stop a schedule from firing until it is resumed. Jobs that it has enqueued go on.",
		func(ctx context.Context, s *queue.Schedules, name string) (any, string, error) {
			return map[string]string{"paused": name}, "paused", s.Pause(ctx, name)
		})
}

func scheduleResumeCommand(t *tool) *cobra.Command {
	return scheduleVerb(t, "resume", "End the pause of a schedule", "End the pause of a schedule. Ticks of the time of the pause are not fired.",
		func(ctx context.Context, s *queue.Schedules, name string) (any, string, error) {
			return map[string]string{"resumed": name}, "resumed", s.Resume(ctx, name)
		})
}

func scheduleRunCommand(t *tool) *cobra.Command {
	return scheduleVerb(t, "run", "Fire a schedule once more, now",
		"Fire a schedule once more, now, also if it is paused or its last job is not over. Its\nticks stay as they are.",
		func(ctx context.Context, s *queue.Schedules, name string) (any, string, error) {
			e, err := s.Run(ctx, name)
			said := "enqueued job " + e.ID.String()
			if e.Duplicate {
				said = "job " + e.ID.String() + " holds the unique key"
			}
			return e, said, err
		})
}
