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
	"strings"
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

// program does what its first argument says: prepare makes the files, server and device are programs of their
// own, account looks at what they have left. Without it, program does all that.
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
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		role, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch role {
	case "":
	case "prepare":
		return prepare(ctx, at, names(p.devices))
	case "server":
		return serverProgram(endingWith(ctx, os.Stdin), at, out)
	case "device":
		return deviceProgram(endingWith(ctx, os.Stdin), at, *name, *address, p.jobs)
	case "account":
		a, err := wholeAccount(ctx, at, names(p.devices))
		return tell(out, a, err)
	default:
		return fmt.Errorf("no program %q: want prepare, server, device or account", role)
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
	return tell(out, a, err)
}

// tell prints an account, and returns an error if it has faults.
func tell(out io.Writer, a *account, err error) error {
	if err == nil {
		_, err = fmt.Fprintln(out, a)
	}
	if err == nil && len(a.faults) > 0 {
		err = errors.New("the account has faults")
	}
	return err
}

// names returns the names of so many devices.
func names(devices int) (all []string) {
	for i := range devices {
		all = append(all, fmt.Sprintf("device-%02d", i+1))
	}
	return all
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
