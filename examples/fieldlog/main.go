// Fieldlog is a program for a device that is offline at times: it writes readings
// into a table, each with the job that uploads it in the same transaction. So it
// loses none of them, whatever the network is like, and needs no code for that.
//
// The network is in the same program, and goes through bad times: there is no carrier,
// which the modem tells; there is a carrier but no route; a captive portal answers; the
// token has expired; the server is overloaded. Meanwhile a line says how many readings
// wait, and why.
//
// Read device.go to see how errand is used. The other files are the story (main.go)
// and the network (network.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/errandq/errand"
)

func main() {
	db := flag.String("db", "", "`file` that holds readings and jobs; if empty, one that is removed in the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, *db, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fieldlog:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db string, out io.Writer) (err error) {
	if db == "" {
		dir, err := os.MkdirTemp("", "fieldlog-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		db = filepath.Join(dir, "fieldlog.db")
	}
	net, err := startNetwork()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.close()) }()
	// The story tells what is logged as warnings.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	d, err := open(ctx, db, net.client(), net.url(), net.login, log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := d.worker.Run(ctx)
		stop(err)
		ended <- err
	}()
	err = story(ctx, d, net, out)
	stop(nil)
	return errors.Join(err, <-ended, d.close())
}

// chapter is a time with one kind of network.
type chapter struct {
	title    string
	weather  weather
	carrier  bool
	readings int
	// until ends the chapter, with the number of requests that it has seen.
	until func(s status, requests int) bool
}

var chapters = []chapter{
	{"online", online, true, 3, nothingWaits},
	{"the modem has no carrier", noRoute, false, 5, held("no carrier")},
	{"a carrier, but no route", noRoute, true, 2, held("network is unreachable")},
	{"a captive portal answers", portal, true, 2, held("log in to this network")},
	{"the token has expired", expired, true, 3, held("token expired")},
	{"there is a new token", online, true, 0, nothingWaits},
	{"the server is overloaded", overloaded, true, 1, func(_ status, requests int) bool { return requests > 0 }},
	{"online", online, true, 0, nothingWaits},
}

func nothingWaits(s status, _ int) bool { return s.waiting == 0 }

func held(why string) func(status, int) bool {
	return func(s status, _ int) bool { return s.held == why }
}

// story takes the device through all chapters, and accounts for its readings.
func story(ctx context.Context, d *device, net *network, out io.Writer) error {
	written := 0
	for _, c := range chapters {
		net.become(c.weather)
		if c.carrier {
			d.modem.Open()
		} else {
			d.modem.Close("no carrier")
		}
		for range c.readings {
			if err := d.record(ctx, 20+float64(written)/10); err != nil {
				return err
			}
			written++
		}
		s, err := d.waitFor(ctx, func(s status) bool { return c.until(s, net.requests()) })
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%-26s%s\n", c.title+":", s); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d readings written, %d received\n", written, net.received())
	return err
}

// waitFor looks at the status until it is as wanted.
func (d *device) waitFor(ctx context.Context, wanted func(status) bool) (status, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := d.status(ctx)
		if err != nil || wanted(s) {
			return s, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}
