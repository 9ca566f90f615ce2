package main

import (
	"slices"

	queue "github.com/errandq/errand"
)

// stateCell returns a cell for a state, in the colour of what should be looked at.
func stateCell(s queue.State) cell {
	c := text(string(s))
	switch s {
	case queue.Dead:
		return c.in(red)
	case queue.Running:
		return c.in(green)
	}
	return c
}

// printJobs writes a page of jobs as a table. about is how many jobs there are to look at; zero: not known.
func (t *tool) printJobs(p *printer, page *queue.JobPage, about int64) {
	if len(page.Jobs) == 0 {
		p.printf("no jobs\n")
	} else {
		list := table{head: []string{"ID", "QUEUE", "KIND", "STATE", " ATTEMPT", "AT", "LAST ERROR"}}
		passedOn := slices.ContainsFunc(page.Jobs, func(j queue.JobInfo) bool { return j.Origin != (queue.Origin{}) })
		if passedOn {
			list.head = slices.Insert(list.head, 3, "ORIGIN")
		}
		for _, j := range page.Jobs {
			at := j.DueAt
			switch {
			case !j.EndedAt.IsZero():
				at = j.EndedAt
			case !j.StartedAt.IsZero():
				at = j.StartedAt
			}
			if at.IsZero() {
				at = j.CreatedAt
			}
			row := []cell{text(j.ID.String()), text(j.Queue), text(j.Kind), stateCell(j.State), number(j.Attempt), text(when(at)), text(orDash(j.Error))}
			if passedOn {
				row = slices.Insert(row, 3, text(orDash(originText(j.Origin))))
			}
			list.add(row...)
		}
		list.print(p, t.out)
	}
	switch looked := int64(page.Looked); {
	case page.Partial && about > looked:
		p.printf("%d of about %d jobs looked at, as no index serves this choice\n", looked, about)
	case page.Partial:
		p.printf("%s looked at, as no index serves this choice\n", jobsText(page.Looked))
	}
	if page.Next != "" {
		p.printf("more: --after %s\n", page.Next)
	}
}
