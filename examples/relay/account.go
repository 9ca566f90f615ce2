package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/errandq/errand"
)

// account compares what the programs have noted with the files of the queues.
type account struct {
	tried    int // numbers for which a device set out to make a job
	made     int // jobs that the queue of a device has acknowledged
	received int // jobs on the server
	waiting  int // jobs that wait on their device, and are not on the server
	passing  int // jobs that wait on their device, and are on the server: the device does not know yet
	refused  int // jobs that the server does not take, dead on their device
	again    int // attempts of the server that came after another one of the same job
	faults   []string
}

func (a *account) fault(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

// String returns the account in a few lines, with the first faults.
func (a *account) String() string {
	text := fmt.Sprintf("%d jobs made: %d received once, %d refused, %d wait on a device, %d passing; %d attempts were made again",
		a.made, a.received, a.refused, a.waiting, a.passing, a.again)
	for i, f := range a.faults {
		if i == 20 {
			return text + fmt.Sprintf("\n\tand %d more faults", len(a.faults)-i)
		}
		text += "\n\tfault: " + f
	}
	return text
}

// book is what is known of the jobs of one device.
type book struct {
	name  string
	tried map[int]bool
	made  map[int]string // their IDs on the device
	// from the files
	there  map[int]errand.State     // on the device, but for those that are done
	server map[int][]errand.JobInfo // on the server
}

// wholeAccount is the account of all devices, and of what the server has done. Nobody works on the files.
func wholeAccount(ctx context.Context, p places, names []string) (*account, error) {
	server, err := openFile(ctx, p.serverFile("db"))
	if err != nil {
		return nil, err
	}
	a, ran := &account{}, map[string]string{} // the device and the number of a job, by its ID on the server
	for _, name := range names {
		b, err := readBook(ctx, p, name, server)
		if err != nil {
			return nil, errors.Join(err, server.Close())
		}
		a.judge(b)
		for n, rows := range b.server {
			for _, row := range rows {
				if row.State == errand.Done {
					ran[row.ID.String()] = fmt.Sprint(name, " ", n)
				}
			}
		}
	}
	if err := a.runs(p.serverFile("notes"), ran); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return a, server.Close()
}

// deviceAccount is the account of one device, on which nobody works, while the server goes on.
func deviceAccount(ctx context.Context, p places, name string) (*account, error) {
	server, err := openFile(ctx, p.serverFile("db"))
	if err != nil {
		return nil, err
	}
	a := &account{}
	b, err := readBook(ctx, p, name, server)
	if err == nil {
		a.judge(b)
	}
	return a, errors.Join(err, server.Close())
}

func openFile(ctx context.Context, path string) (*errand.Queue, error) {
	return errand.Open(ctx, path, &errand.Options{Logger: logger("account"), SQLite: errand.SQLiteOptions{Existing: true}})
}

// readBook reads the device before the server: a job that has left the device meanwhile is found there.
func readBook(ctx context.Context, p places, name string, server *errand.Queue) (*book, error) {
	b := &book{name: name, tried: map[int]bool{}, made: map[int]string{}, there: map[int]errand.State{}, server: map[int][]errand.JobInfo{}}
	err := eachNote(p.deviceFile(name, "notes"), func(words []string) error {
		first, err := strconv.Atoi(words[1])
		if words[0] == "made" {
			b.made[first] = words[2]
			return err
		}
		last, err2 := strconv.Atoi(words[2])
		for n := first; n <= last; n++ {
			b.tried[n] = true
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		return nil, err
	}
	device, err := openFile(ctx, p.deviceFile(name, "db"))
	if err != nil {
		return nil, err
	}
	left := errand.JobFilter{Queue: upQueue, States: []errand.State{errand.Scheduled, errand.Ready, errand.Running, errand.Blocked, errand.Dead}}
	err = eachJob(ctx, device, left, func(job errand.JobInfo, n int) { b.there[n] = job.State })
	if err = errors.Join(err, device.Close()); err != nil {
		return nil, err
	}
	err = eachJob(ctx, server, errand.JobFilter{Origin: errand.Origin{Device: name}}, func(job errand.JobInfo, n int) {
		b.server[n] = append(b.server[n], job)
	})
	return b, err
}

// eachJob calls f with each job and its number.
func eachJob(ctx context.Context, q *errand.Queue, filter errand.JobFilter, f func(errand.JobInfo, int)) error {
	o := &errand.ListOptions{Limit: 1000, Args: true}
	for {
		page, err := q.Jobs(ctx, filter, o)
		if err != nil {
			return err
		}
		for _, job := range page.Jobs {
			var args Reading // a Trace has the same
			if err := json.Unmarshal(job.Args, &args); err != nil {
				return err
			}
			f(job, args.N)
		}
		if o.After = page.Next; page.Next == "" {
			return nil
		}
	}
}

// judge adds the jobs of a device.
func (a *account) judge(b *book) {
	a.tried += len(b.tried)
	a.made += len(b.made)
	for n := range b.tried {
		rows, id, what := b.server[n], b.made[n], fmt.Sprintf("%s: job %d", b.name, n)
		state, there := b.there[n]
		switch {
		case len(rows) > 1:
			a.fault("%s is on the server %d times: %v and %v", what, len(rows), rows[0].ID, rows[1].ID)
		case len(rows) == 1 && refused(n):
			a.fault("%s is on the server, which does not take it", what)
		case len(rows) == 1 && there && state == errand.Dead:
			a.fault("%s is on the server, and dead on the device", what)
		case len(rows) == 1 && rows[0].State == errand.Dead:
			a.fault("%s is dead on the server: %s", what, rows[0].Error)
		case len(rows) == 1 && id != "" && !sameID(rows[0].Origin.ID, id):
			a.fault("%s is %s on the device, and on the server it comes from %s", what, id, rows[0].Origin.ID)
		case len(rows) == 1 && there:
			a.passing++
		case len(rows) == 1:
			a.received++
		case there && state == errand.Dead && refused(n):
			a.refused++
		case there && state == errand.Dead:
			a.fault("%s is dead on the device", what)
		case there:
			a.waiting++
		case id != "":
			a.fault("%s is lost: it was made as %s, and is neither on the device nor on the server", what, id)
		}
	}
	for n := range b.server {
		if !b.tried[n] {
			a.fault("%s: job %d is on the server, and nobody made it", b.name, n)
		}
	}
	a.order(b)
}

// sameID reports whether two IDs are the same, with or without dashes.
func sameID(a, b string) bool {
	return strings.ReplaceAll(a, "-", "") == strings.ReplaceAll(b, "-", "")
}

// order finds what the server has enqueued out of order: the keys of its jobs rise.
func (a *account) order(b *book) {
	last := map[string]int{} // by group, its last number so far
	var all []errand.JobInfo
	number := map[errand.ID]int{}
	for n, rows := range b.server {
		for _, row := range rows {
			all, number[row.ID] = append(all, row), n
		}
	}
	slices.SortFunc(all, func(x, y errand.JobInfo) int { return int(x.ID.Key() - y.ID.Key()) })
	for _, row := range all {
		n := number[row.ID]
		if group := group(n); group != "" {
			if n < last[group] {
				a.fault("%s: job %d of group %s came to the server after job %d", b.name, n, group, last[group])
			}
			last[group] = max(last[group], n)
		}
	}
}

// runs compares the notes of the server with the jobs that are done there, and looks at the order in which it
// has done them. A job runs again only if the server was killed before it had written that the job is done, and
// then before the next one of its group.
func (a *account) runs(path string, done map[string]string) error {
	last, seen := map[string]int{}, map[string]bool{}
	err := eachNote(path, func(words []string) error {
		id, device := words[1], words[2]
		n, err := strconv.Atoi(words[4])
		if err != nil {
			return err
		}
		if seen[id] {
			a.again++
		}
		seen[id] = true
		if group := group(n); group != "" {
			key := device + " " + group
			if n < last[key] {
				a.fault("%s: job %d of group %s ran after job %d", device, n, group, last[key])
			}
			last[key] = max(last[key], n)
		}
		return nil
	})
	for id, what := range done {
		if !seen[id] {
			a.fault("%s is done on the server as %s, and its handler was never called", what, id)
		}
	}
	return err
}
