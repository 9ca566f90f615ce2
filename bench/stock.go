package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// stock is what is in a file before a workload begins. A file is made once for
// each system and copied for each measurement, since a million jobs take a
// while. All numbers are at scale 1.
type stock struct {
	// scheduled jobs are due in a day, of all priorities.
	scheduled int
	// grouped is set if each scheduled job has a group of its own.
	grouped bool
	// behind jobs are of one group. The first is due in a day, and the others wait for
	// it. They are of the kind that workers handle, and were there before those that
	// are due or ready.
	behind int
	// others are ready, of a kind that nobody handles, and were there first.
	others int
	// held jobs are ready, of a kind that workers handle, and were there before those
	// that are due. Their kind is held.
	held int
	// due jobs were scheduled all for the same time, which is over.
	due int
	// ready jobs are ready.
	ready int
	// queues have a job each that is due in a day. Their names begin with "webhook/".
	queues int
}

// dueIn is when the due jobs of a stock are due, and leastDueIn however few there are. All must be
// enqueued by then.
const (
	dueIn      = 12 * time.Second
	leastDueIn = 3 * time.Second
)

var errTooSlow = errors.New("bench: jobs were due before all of them were enqueued")

// make fills a new file.
func (k stock) make(ctx context.Context, t *trial) error {
	s, err := t.openAt(ctx, setup{path: t.path()})
	if err != nil {
		return err
	}
	n := t.n(k.scheduled)
	tomorrow := time.Now().Add(24 * time.Hour)
	err = enqueueAll(ctx, s, t.n(k.scheduled), func(i int) newJob {
		// 7,919 is a prime: the order in which they come is not that of their times.
		j := newJob{payload: payload{N: i, Pad: smallPad}, Due: tomorrow.Add(time.Duration(i*7919%n) * time.Millisecond), Priority: i%201 - 100}
		if k.grouped {
			j.Group = fmt.Sprint("device ", i)
		}
		return j
	})
	if err != nil {
		return err
	}
	err = enqueueAll(ctx, s, t.n(k.behind), func(i int) newJob {
		j := newJob{payload: payload{N: i, Pad: smallPad}, Group: "document"}
		if i == 0 {
			j.Due = tomorrow
		}
		return j
	})
	if err != nil {
		return err
	}
	err = enqueueAll(ctx, s, t.n(k.others), func(i int) newJob {
		return newJob{payload: payload{N: i, Pad: smallPad}, Other: true}
	})
	if err != nil {
		return err
	}
	err = enqueueAll(ctx, s, t.n(k.queues), func(i int) newJob {
		return newJob{payload: payload{N: i, Pad: smallPad}, Due: tomorrow, Queue: fmt.Sprint("webhook/", i)}
	})
	if err != nil {
		return err
	}
	if k.held > 0 {
		err = enqueueAll(ctx, s, t.n(k.held), func(i int) newJob {
			return newJob{payload: payload{N: i, Pad: smallPad}, Kind: heldKind}
		})
		if err == nil {
			err = s.(holder).Hold(ctx, heldKind)
		}
		if err != nil {
			return err
		}
	}
	at := time.Now().Add(max(t.scaled(dueIn), leastDueIn))
	err = enqueueAll(ctx, s, t.n(k.due), func(i int) newJob {
		return newJob{payload: payload{N: i, Pad: smallPad}, Due: at}
	})
	if err != nil {
		return err
	}
	if k.due > 0 {
		if time.Now().After(at) {
			return errTooSlow
		}
		time.Sleep(time.Until(at))
	}
	return enqueueAll(ctx, s, t.n(k.ready), func(i int) newJob {
		return newJob{payload: payload{N: i, Pad: smallPad}}
	})
}

func enqueueAll(ctx context.Context, s system, n int, newOne func(i int) newJob) error {
	for from := 0; from < n; {
		batch := make([]newJob, min(n-from, 5000))
		for i := range batch {
			batch[i] = newOne(from)
			from++
		}
		if err := s.EnqueueMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// shelf holds the stocks that were made.
type shelf struct {
	dir    string
	scale  float64
	errOut io.Writer
	made   map[string]string
}

// get returns the file with the stock of a workload for a system.
func (sh *shelf) get(ctx context.Context, e entry, w workload) (string, error) {
	key := fmt.Sprintf("%s %+v", e.name, *w.stock)
	if path, ok := sh.made[key]; ok {
		return path, nil
	}
	dir, err := os.MkdirTemp(sh.dir, "stock-")
	if err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(sh.errOut, "stock for %s %s\n", w.name, e.name); err != nil {
		return "", err
	}
	if _, err := start(ctx, spec{System: e.name, Workload: w.name, Scale: sh.scale, Dir: dir, Role: roleStock}, sh.errOut); err != nil {
		return "", err
	}
	sh.made[key] = filepath.Join(dir, databaseName)
	return sh.made[key], nil
}

// copyFile copies a database that is closed, and has it on the disk before
// anything is measured.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
