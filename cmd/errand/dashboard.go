package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

// dashboardFlags are what the flags say.
type dashboardFlags struct {
	listen, socket, auth, cert, key string
	hosts                           []string
	role                            dashboard.Role
	readOnly, hash                  bool
}

func dashboardCommand(t *tool) *cobra.Command {
	f := &dashboardFlags{role: dashboard.Admin}
	cmd := &cobra.Command{
		Use:   "dashboard FILE",
		Short: "Serve pages that show a queue and act on it",
		Long: `Serve pages that show a queue and act on it, to browsers on this machine. The address
that is printed lets in one browser, once, for 12 hours; it lapses after 10 minutes. Enter
prints another one.

The file is opened for reading. The first action that is confirmed opens it for writing;
with --read-only nothing does.

--socket serves on a unix socket that only you may use, for ssh -L. --listen with another
address than one of this machine needs --auth: a file with a line for each who may enter,
as name:role:hash. The roles are viewer, operator and admin. --hash reads a password and
prints its hash. Passwords travel as they are, unless a proxy or --tls-cert adds https.

Requests for other hosts than this machine are refused. If it listens for others, its name
and addresses are good, and printed. --host names the host that people see if there is a
proxy, a tunnel or another name.`,
		Example: `  errand dashboard jobs.db
  errand dashboard jobs.db --read-only --socket errand.sock
  errand dashboard --hash < secret`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.hash {
				return cobra.ExactArgs(0)(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case t.json:
				return errors.New("--json: a dashboard has pages; they are there as JSON by ?format=json")
			case f.hash:
				return t.printHash(cmd.Context())
			}
			e, err := f.entrance(cmd.Context())
			if err != nil {
				return err
			}
			return t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return t.serveDashboard(cmd.Context(), q, args[0], f, e)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "listen on this address; with port 0 on a free one")
	flags.StringVar(&f.socket, "socket", "", "listen on a unix socket at this `PATH`")
	flags.StringVar(&f.auth, "auth", "", "let in those in this `FILE`, by name and password, in place of the address that works once")
	flags.StringSliceVar(&f.hosts, "host", nil, "a host that people see, as ops.example.com (repeatable)")
	flags.TextVar(&f.role, "role", dashboard.Admin, "what who comes by the address may do, as a `ROLE`: viewer, operator or admin")
	flags.BoolVar(&f.readOnly, "read-only", false, "never write, and show no buttons")
	flags.StringVar(&f.cert, "tls-cert", "", "serve https with the certificate in this `FILE`")
	flags.StringVar(&f.key, "tls-key", "", "the `FILE` with the key of the certificate")
	flags.BoolVar(&f.hash, "hash", false, "read a password, print its hash for --auth, and end")
	cmd.MarkFlagsMutuallyExclusive("listen", "socket")
	cmd.MarkFlagsMutuallyExclusive("role", "auth")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	completeArgs(cmd, nil)
	roles := cobra.FixedCompletions([]string{dashboard.Viewer.String(), dashboard.Operator.String(), dashboard.Admin.String()}, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("role", roles); err != nil { // no such flag, or it has one
		panic(err)
	}
	return cmd
}

// entrance checks the flags, and returns who may enter.
func (f *dashboardFlags) entrance(ctx context.Context) (*entrance, error) {
	e := &entrance{role: f.role, name: userName()}
	config, err := tlsConfig(f.cert, f.key)
	if err != nil {
		return nil, err
	}
	e.tls = config
	for _, h := range f.hosts {
		if err := e.allow(h); err != nil {
			return nil, err
		}
	}
	if f.auth != "" {
		users, err := readUsers(f.auth)
		if err != nil {
			return nil, ofFile(f.auth, err)
		}
		e.passwords = dashboard.Basic(users)
	} else if f.socket == "" {
		at, err := net.ResolveTCPAddr("tcp", f.listen)
		if err == nil && !at.IP.IsLoopback() {
			err = errors.New("who else can reach this address would see the queue: it needs --auth, a file with those who may enter")
		}
		if err != nil {
			return nil, fmt.Errorf("--listen %s: %w", f.listen, err)
		}
		f.listen = at.String() // and not what the name stands for later
	}
	return e, ctx.Err()
}

// actFor is how long an action may take after the end.
const actFor = 3 * time.Second

// serveDashboard serves the dashboard until ctx ends.
func (t *tool) serveDashboard(ctx context.Context, q *queue.Queue, path string, f *dashboardFlags, e *entrance) (err error) {
	if e.file, err = keepFile(path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.file.Close()) }() // after the queues, as it takes their locks
	l, err := f.listener(ctx)
	if err != nil {
		return err
	}
	writer := &onceOpen{open: func() (*queue.Queue, error) {
		return queue.Open(ctx, path, &queue.Options{Logger: t.logger(), SQLite: queue.SQLiteOptions{Existing: true}})
	}}
	defer func() { err = errors.Join(err, ofFile(path, writer.close())) }()
	o := &dashboard.Options{Auth: e.identity, Origins: e.origins, Name: filepath.Base(path), ReadOnly: f.readOnly, Writer: writer.get,
		Logger: slog.New(slog.NewTextHandler(t.errs, nil))} // with a line for each action
	e.at(l.Addr())
	if e.passwords != nil && e.tls == nil && f.socket == "" {
		warn := printer{w: t.errs}
		warn.printf("errand: --auth: passwords travel in the clear, unless a proxy adds https; --tls-cert does too\n")
	}
	p := printer{w: t.out}
	p.printf("The dashboard of %s", safe(path))
	if f.socket != "" {
		p.printf(" on %s. From elsewhere: ssh -L 8080:%[1]s HOST, and then", safe(f.socket))
	}
	if e.passwords == nil {
		p.printf(", for one browser:\n%s\n", e.address())
	} else {
		p.printf(", for those with a password:\n%s\n", e.address())
		for _, host := range e.others {
			p.printf("%s://%s/\n", e.scheme, safe(host))
		}
	}
	if p.err != nil {
		return errors.Join(p.err, l.Close())
	}
	if e.passwords == nil {
		staysInBackground()
		go t.printMore(e)
	}
	return serveUntil(ctx, newServer(e.enter(dashboard.Handler(q, o)), e.tls), l, actFor)
}

// Clients that are slow have this long. Actions take 30 s at most, and streams set their own time for
// each write.
const (
	headFor   = 10 * time.Second
	readFor   = 30 * time.Second
	answerFor = 2 * time.Minute // with what readFor is for
)

func newServer(h http.Handler, config *tls.Config) *http.Server {
	return &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: headFor, ReadTimeout: readFor, WriteTimeout: answerFor,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)} // clients come and go
}

// printMore prints another address for each line that is typed.
func (t *tool) printMore(e *entrance) {
	p := printer{w: t.out}
	for lines := bufio.NewScanner(t.in); lines.Scan(); { // until nobody is there to type, or the dashboard ends
		p.printf("%s\n", e.address())
	}
}

// serveUntil serves until ctx ends. Then it waits for requests that are being answered, for a time
// at most; those that would go on without an end lose their context after a second.
func serveUntil(ctx context.Context, server *http.Server, l net.Listener, wait time.Duration) error {
	all, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server.BaseContext = func(net.Listener) context.Context { return all }
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(l, "", "")
			return
		}
		served <- server.Serve(l)
	}()
	select {
	case err := <-served: // the socket failed
		return err
	case <-ctx.Done():
	}
	defer time.AfterFunc(time.Second, end).Stop()
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer stop()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) { // somebody who never finishes
		err = server.Close()
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// onceOpen opens a file for writing when that is first asked for, and again if the queue has closed
// itself.
type onceOpen struct {
	open func() (*queue.Queue, error)

	mu      sync.Mutex
	q       *queue.Queue
	opening chan struct{} // closed when it has come to an end; nil if nobody opens
	err     error
}

// askFor is how long a queue is asked whether it can be used. One that is only slow can.
const askFor = time.Second

// get returns the queue. If ctx ends meanwhile, the file is open for the next call.
func (o *onceOpen) get(ctx context.Context) (*queue.Queue, error) {
	o.mu.Lock()
	q := o.q
	o.mu.Unlock()
	if q != nil && lives(ctx, q) {
		return q, nil
	}
	o.mu.Lock()
	switch {
	case o.q == nil: // also if somebody else has found that it is dead
	case o.q != q:
		defer o.mu.Unlock()
		return o.q, nil
	default:
		_ = q.Close() // who has acted then was told why it ended
		o.q = nil
	}
	if o.opening == nil {
		o.opening = make(chan struct{})
		go o.begin(o.opening)
	}
	opened := o.opening
	o.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.q == nil && o.err == nil { // another call has found already that it is dead
		return nil, queue.ErrClosed
	}
	return o.q, o.err
}

func lives(ctx context.Context, q *queue.Queue) bool {
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	return q.Health(ctx, &queue.HealthOptions{MaxAge: -1}).Live
}

func (o *onceOpen) begin(opened chan struct{}) {
	q, err := o.open()
	o.mu.Lock()
	o.q, o.err, o.opening = q, err, nil
	o.mu.Unlock()
	close(opened)
}

// close closes the file if it is open. Nobody may call get any more.
func (o *onceOpen) close() error {
	o.mu.Lock()
	opening := o.opening
	o.mu.Unlock()
	if opening != nil {
		<-opening
	}
	if o.q == nil {
		return nil
	}
	return o.q.Close()
}
