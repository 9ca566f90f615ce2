package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/internal/badnet"
)

// plan is what is to happen.
type plan struct {
	devices, jobs int // jobs of each device
	kills         int // of devices, and as many of the server
	seed          uint64
	most          time.Duration // after which all is stopped; 0: when the server has all jobs
	weather       badnet.Weather
}

// fleet runs a server and devices, each in a process of its own, with a bad network between them.
type fleet struct {
	plan
	places
	names   []string
	out     io.Writer
	self    string // the program
	random  *rand.Rand
	network *badnet.Network
	front   string // the address of the network
	behind  atomic.Pointer[url.URL]
	heard   chan heard
	running map[string]*process // by name, until their end was heard

	done    int // attempts of which the server has told
	due     []target
	killed  map[bool]int // true: of the server
	ended   int          // devices that have nothing left
	account *account     // of the devices that were killed, faults alone
}

// target is a kill that is due when the server has done so many jobs.
type target struct {
	at     int
	server bool
}

type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // its end asks the program to end
}

// heard is a line of a process, or its end.
type heard struct {
	by   *process
	line string
	over bool
	err  error
}

// run goes through the plan, and returns the account.
func (p plan) run(ctx context.Context, at places, out io.Writer) (*account, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &fleet{
		plan: p, places: at, names: names(p.devices), out: out, self: self, random: rand.New(rand.NewPCG(p.seed, 1)),
		heard: make(chan heard), running: map[string]*process{}, killed: map[bool]int{}, account: &account{},
	}
	for i := range p.kills {
		f.due = append(f.due, target{p.devices * p.jobs * (2*i + 1) / (2*p.kills + 1), false}, target{p.devices * p.jobs * (2*i + 2) / (2*p.kills + 1), true})
	}
	if err := prepare(ctx, at, f.names); err != nil {
		return nil, err
	}
	f.network = badnet.New(&http.Transport{DisableCompression: true}, p.seed)
	f.network.SetWeather(p.weather)
	defer f.network.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.front = "http://" + l.Addr().String()
	proxy := &http.Server{Handler: f.network.Proxy(f.behind.Load), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = proxy.Serve(l) }() // until Close
	defer func() { _ = proxy.Close() }()
	err = f.play(ctx)
	if err = errors.Join(err, f.end()); err != nil {
		return nil, err
	}
	if err := f.report(); err != nil {
		return nil, err
	}
	a, err := wholeAccount(ctx, at, f.names)
	if err == nil {
		a.faults = append(a.faults, f.account.faults...)
	}
	return a, err
}

// play starts all programs and kills some, until neither a device nor the server has anything left.
func (f *fleet) play(ctx context.Context) error {
	if f.most > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, f.most)
		defer stop()
	}
	if err := f.start(serverName); err != nil {
		return err
	}
	for f.behind.Load() == nil {
		if err := f.hear(<-f.heard); err != nil {
			return err
		}
	}
	for _, name := range f.names {
		if err := f.start(name); err != nil {
			return err
		}
	}
	var kill, look <-chan time.Time
	for {
		if look == nil && f.ended == f.devices {
			look = time.After(100 * time.Millisecond)
		}
		if kill == nil && len(f.due) > 0 && f.done >= f.due[0].at {
			kill = time.After(time.Duration(f.random.Int64N(int64(100 * time.Millisecond))))
		}
		select {
		case h := <-f.heard:
			if err := f.hear(h); err != nil {
				return err
			}
		case <-kill:
			kill = nil
			if err := f.kill(ctx, f.due[0].server); err != nil {
				return err
			}
			f.due = f.due[1:]
		case <-look:
			look = nil
			if n, err := f.left(ctx); err != nil || n == 0 {
				return err
			}
		case <-ctx.Done():
			if f.most > 0 {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}

// left returns how many jobs the server has still to do.
func (f *fleet) left(ctx context.Context) (int64, error) {
	server, err := openFile(ctx, f.serverFile("db"))
	if err != nil {
		return 0, err
	}
	n, err := live(ctx, server)
	return n, errors.Join(err, server.Close())
}

// start starts a program.
func (f *fleet) start(name string) error {
	args := []string{serverName, "-server", f.serverDir, "-devices-in", f.deviceDir}
	if name != serverName {
		args = []string{"device", "-server", f.serverDir, "-devices-in", f.deviceDir, "-name", name, "-url", f.front, "-jobs", strconv.Itoa(f.jobs)}
	}
	p := &process{name: name, cmd: exec.Command(f.self, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	f.running[name] = p
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.heard <- heard{by: p, line: lines.Text()}
		}
		f.heard <- heard{by: p, over: true, err: p.cmd.Wait()}
	}()
	return nil
}

// hear takes what a program has said.
func (f *fleet) hear(h heard) error {
	if h.over {
		delete(f.running, h.by.name)
		if h.err != nil || h.by.name == serverName {
			return fmt.Errorf("%s has ended: %w", h.by.name, h.err)
		}
		f.ended++
		return nil
	}
	if _, at, ok := strings.Cut(h.line, "msg=listening addr="); ok {
		f.behind.Store(&url.URL{Scheme: "http", Host: at})
	} else if n, ok := strings.CutPrefix(h.line, "ran "); ok {
		n, err := strconv.Atoi(n)
		f.done += n
		return err
	}
	return nil
}

// kill kills the server, or one of the devices that run, and starts it again. Of a device it looks first at
// what became of its jobs.
func (f *fleet) kill(ctx context.Context, server bool) error {
	name := serverName
	if !server {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.running)), func(name string) bool { return name == serverName })
		name = names[f.random.IntN(len(names))]
	}
	p := f.running[name]
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for h := range f.heard { // what it has said before
		if h.by == p && h.over {
			delete(f.running, name)
			break
		}
		if err := f.hear(h); err != nil {
			return err
		}
	}
	f.killed[server]++
	if !server {
		a, err := deviceAccount(ctx, f.places, name)
		if err != nil {
			return err
		}
		for _, fault := range a.faults {
			f.account.fault("after kill %d of devices: %s", f.killed[server], fault)
		}
	}
	return f.start(name)
}

// end asks all programs to end, the server last, and waits for them.
func (f *fleet) end() error {
	var failed error
	for _, servers := range []bool{false, true} {
		for name, p := range f.running {
			if (name == serverName) == servers {
				failed = errors.Join(failed, p.stdin.Close())
			}
		}
		limit := time.After(time.Minute)
		for len(f.running) > 0 && (servers || len(f.running) > 1 || f.running[serverName] == nil) {
			select {
			case h := <-f.heard:
				if h.over {
					delete(f.running, h.by.name)
					failed = errors.Join(failed, h.err)
				}
			case <-limit:
				for name, p := range f.running {
					failed = errors.Join(failed, fmt.Errorf("%s does not end", name), p.cmd.Process.Kill())
				}
			}
		}
	}
	return failed
}

// report says what happened.
func (f *fleet) report() error {
	text := fmt.Sprintf("%d devices with %d jobs each, seed %d; %d kills of devices, %d of the server\nthe network carried %d bytes, and did:",
		f.devices, f.jobs, f.seed, f.killed[false], f.killed[true], f.network.Bytes())
	for i := range badnet.Fault(badnet.Faults) {
		text += fmt.Sprintf(" %d %v,", f.network.Count(i), i)
	}
	_, err := fmt.Fprintln(f.out, strings.TrimSuffix(text, ","))
	return err
}
