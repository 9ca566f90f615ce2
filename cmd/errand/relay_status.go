package main

import (
	"context"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// fleet is the devices of a server together.
type fleet struct {
	Devices  int          `json:"devices"`
	Revoked  int          `json:"revoked"`
	Held     int          `json:"held"` // streams
	Counts   relay.Counts `json:"counts"`
	LastSeen time.Time    `json:"last_seen,omitzero"`
}

// fleetOf returns the devices together, nil if there are none.
func fleetOf(ctx context.Context, q *queue.Queue) (*fleet, error) {
	all, err := relay.Devices(ctx, q)
	if len(all) == 0 || err != nil {
		return nil, err
	}
	f := &fleet{Devices: len(all)}
	for i := range all {
		d := &all[i]
		if !d.RevokedAt.IsZero() {
			f.Revoked++
		}
		held, last := heldStreams(d)
		f.Held += held
		if last.After(f.LastSeen) {
			f.LastSeen = last
		}
		f.Counts.Enqueued += d.Counts.Enqueued
		f.Counts.Duplicates += d.Counts.Duplicates
		f.Counts.Refused += d.Counts.Refused
		f.Counts.Later += d.Counts.Later
		f.Counts.Bytes += d.Counts.Bytes
	}
	return f, nil
}

func (t *tool) printFleet(p *printer, f *fleet) {
	if f == nil {
		return
	}
	p.printf("\n")
	list := table{head: []string{" DEVICES", " REVOKED", " HELD STREAMS", " ENQUEUED", " DUPLICATES", " REFUSED", " LATER", "LAST SEEN"}}
	list.add(number(f.Devices), number(f.Revoked), warning(f.Held), number(f.Counts.Enqueued), number(f.Counts.Duplicates),
		warning(int(f.Counts.Refused)), number(f.Counts.Later), text(when(f.LastSeen)))
	list.print(p, t.out)
}

func (t *tool) printRelayed(p *printer, all []relay.QueueInfo) {
	if len(all) == 0 {
		return
	}
	p.printf("\n")
	list := table{head: []string{"RELAYED QUEUE", "DEVICE", "SERVER", " STREAMS", " HELD", " KEPT", " MISSING", "LAST ANSWER"}}
	for _, r := range all {
		held, last := 0, time.Time{}
		for _, s := range r.Streams {
			if s.Held {
				held++
			}
			if s.LastSeen.After(last) {
				last = s.LastSeen
			}
		}
		list.add(text(r.Queue), text(r.Device), text(r.Server), number(len(r.Streams)), warning(held), number(r.Kept), warning(r.Missing), text(when(last)))
	}
	list.print(p, t.out)
}

// warning returns a cell for a number that should be 0.
func warning(n int) cell {
	c := number(n)
	if n > 0 {
		c = c.in(yellow)
	}
	return c
}
