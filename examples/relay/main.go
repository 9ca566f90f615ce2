// Relay has devices that make jobs and a server that does them, with a bad network between them. Each is a
// process of its own with a file of its own, and is killed again and again. In the end the program
// proves its account: each job that a device has acknowledged was received once, or is still on the device, and
// those of a group were received in order.
//
// Read device.go and server.go to see how package relay is used. The other files are the network and the
// kills (fleet.go), and the account (notes.go, account.go).
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
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/badnet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), errand.StopSignals()...)
	context.AfterFunc(ctx, stop)
	if err := program(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

// errFaults is the error of a run whose account has faults.
var errFaults = errors.New("the account has faults")

// program is a server or a device if its first argument says so, else it is the whole.
func program(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("relay", flag.ContinueOnError)
	var p plan
	var at places
	flags.IntVar(&p.devices, "devices", 50, "`number` of devices")
	flags.IntVar(&p.jobs, "jobs", 200, "`number` of jobs of each device")
	flags.IntVar(&p.kills, "kills", 10, "`number` of kills of devices, and as many of the server")
	flags.Uint64Var(&p.seed, "seed", uint64(time.Now().UnixNano()), "`number` from which what is random follows")
	flags.DurationVar(&p.most, "for", 0, "`time` after which all is stopped; if zero, when the server has all jobs")
	rate := flags.Float64("faults", 0.02, "`probability` with which a request meets each fault of the network")
	flags.StringVar(&at.serverDir, "server", "", "`folder` of the server; if empty, one that is removed in the end")
	flags.StringVar(&at.deviceDir, "devices-in", "", "`folder` of the devices; if empty, one that is removed in the end")
	name := flags.String("name", "", "`name` of the device, for a device alone")
	address := flags.String("url", "", "`address` of the server, for a device alone")
	role := ""
	if len(args) > 0 && (args[0] == "server" || args[0] == "device") {
		role, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if role != "" {
		ctx = endingWith(ctx, os.Stdin)
	}
	switch role {
	case "server":
		return serverProgram(ctx, at, out)
	case "device":
		return deviceProgram(ctx, at, *name, *address, p.jobs)
	}
	for _, dir := range []*string{&at.serverDir, &at.deviceDir} {
		if *dir == "" {
			if *dir, err = os.MkdirTemp("", "relay-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
		}
	}
	p.weather = badnet.Storm(*rate)
	p.weather.MaxDelay = 200 * time.Millisecond
	a, err := p.run(ctx, at, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, a)
	if len(a.faults) > 0 {
		return errFaults
	}
	return nil
}

// endingWith returns a context that also ends when in does: with the program that has started this one.
func endingWith(ctx context.Context, in io.Reader) context.Context {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	return ctx
}

// logger has the log of a program on standard error, with its name. That the other side is away is
// no news here.
func logger(name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})).With("program", name)
}
