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
	"strings"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// relayPath is where the handler for devices is.
const relayPath = "/relay"

// serveFlags are what the flags say.
type serveFlags struct {
	listen, key, devices, cert, certKey, clients string
	relay, create                                bool
	options                                      relay.HandlerOptions
}

func serveCommand(t *tool) *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve FILE --relay --listen ADDRESS --server NAME",
		Short: "Take the jobs of devices by HTTP, and enqueue them",
		Long: `Take the jobs that devices pass on by errand relay, or a program, and enqueue each once.
Devices send them to the path /relay, by https with --tls-cert, which is read when it
starts, or else through a proxy that adds https: requests are signed, but whoever sees
them can read the jobs.

Only the devices of the file may send. errand devices adds them and says what each may,
also while this runs. --devices names a file with a line for each, as NAME KEY. Those that
are not there are added when it starts; those that are stay as they are, also the ones
that were revoked. Empty lines, and lines that begin with #, say nothing.

--key is the file with the private key of this server, see errand devices new-key. Devices
have the public half. A device that was added with --mtls has no key: with --tls-client-ca
it is known by the name in its certificate. Jobs are only enqueued: a program with a worker, or errand work on
the same file, runs them. SIGTERM, SIGHUP or an interrupt ends it, once the requests that
are being answered are, or after 5 s. It ends with status 2 if the queue ends.`,
		Example: `  errand serve hub.db --relay --listen 127.0.0.1:0 --server jobs.example.org --key hub.key
  errand serve hub.db --relay --listen 127.0.0.1:0 --server jobs.example.org --key hub.key --devices devices.txt
  errand serve hub.db --relay --listen 127.0.0.1:0 --server jobs.example.org --tls-cert hub.pem --tls-key hub-key.pem --tls-client-ca ca.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), t, args[0]) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.relay, "relay", false, "take the jobs of devices (required: there is nothing else to serve)")
	flags.StringVar(&f.listen, "listen", "", "listen on this `ADDRESS`, as in :8443; with port 0 on a free one (required)")
	flags.StringVar(&f.options.Server, "server", "", "the `NAME` of this server, which devices must name (required)")
	flags.StringVar(&f.key, "key", "", "the `FILE` with the private key of this server, needed by devices with public keys")
	flags.StringVar(&f.devices, "devices", "", "add the devices in this `FILE` that are not there, or in standard input with -")
	flags.StringVar(&f.options.Queue, "queue", "default", "the queue of jobs of devices that have none of their own")
	flags.IntVar(&f.options.MaxConcurrent, "concurrency", 16, "how many requests are in work at a time")
	flags.StringVar(&f.cert, "tls-cert", "", "serve https with the certificate in this `FILE`")
	flags.StringVar(&f.certKey, "tls-key", "", "the `FILE` with the key of the certificate")
	flags.StringVar(&f.clients, "tls-client-ca", "", "know devices by certificates of the authorities in this `FILE`")
	flags.BoolVar(&f.create, "create", false, "make the file if there is none, or nothing in it")
	require(cmd, "relay", "listen", "server")
	cmd.MarkFlagsOneRequired("key", "tls-client-ca")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	completeArgs(cmd, nil)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

func (f *serveFlags) run(ctx context.Context, t *tool, path string) (err error) {
	switch {
	case !f.relay:
		return errors.New("--relay=false: there is nothing else to serve")
	case f.options.MaxConcurrent < 1:
		return errors.New("--concurrency must be at least 1")
	}
	if err := onceStdin(f.key, f.devices); err != nil {
		return err
	}
	if f.key != "" {
		if f.options.Key, err = t.keyOf("key", f.key); err != nil {
			return err
		}
	}
	config, err := tlsConfig(f.cert, f.certKey)
	if err != nil {
		return err
	}
	switch {
	case f.clients != "" && config == nil:
		return errors.New("--tls-client-ca needs --tls-cert")
	case f.clients != "":
		if config.ClientCAs, err = authorities("tls-client-ca", f.clients); err != nil {
			return err
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven // devices with keys have none
	}
	devices, err := f.readDevices(t)
	if err != nil {
		return err
	}
	ctx, stop := heedSignals(ctx)
	defer stop()
	t.errs.Writer = &oneByOne{w: t.errs.Writer} // the logs of all requests
	f.options.Logger = slog.New(slog.NewTextHandler(t.errs, nil))
	return t.writing(ctx, path, f.create, func(q *queue.Queue) error {
		h, err := relay.Handler(q, &f.options)
		if err != nil {
			return err
		}
		if err := addDevices(ctx, q, devices); err != nil {
			return err
		}
		return f.serve(ctx, t, q, h, config)
	})
}

// serve serves until ctx ends, or the queue.
func (f *serveFlags) serve(ctx context.Context, t *tool, q *queue.Queue, h http.Handler, config *tls.Config) error {
	var on net.ListenConfig
	l, err := on.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	scheme := "https"
	if config == nil {
		scheme = "http"
		if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
			warn := printer{w: t.errs}
			warn.printf("errand: --listen: jobs travel in the clear, unless a proxy adds https; --tls-cert does too\n")
		}
	}
	url := scheme + "://" + l.Addr().String() + relayPath
	if err := t.show(map[string]string{"listening": url}, func(p *printer) { p.printf("listening on %s\n", url) }); err != nil {
		return errors.Join(err, l.Close())
	}
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	mux := http.NewServeMux()
	mux.Handle(relayPath, &whileOpen{h: h, q: q, end: end})
	server := newServer(mux, config)
	if f.clients != "" { // whoever has a certificate that does not count should find out why
		server.ErrorLog = slog.NewLogLogger(f.options.Logger.Handler(), slog.LevelWarn)
	}
	err = serveUntil(serving, server, l, stopFor)
	if ctx.Err() == nil && serving.Err() != nil {
		err = errors.Join(context.Cause(serving), err)
	}
	return err
}

// whileOpen is a handler that ends the server when a failure may be that of the queue, and the queue
// has ended.
type whileOpen struct {
	h   http.Handler
	q   *queue.Queue
	end context.CancelCauseFunc
}

func (o *whileOpen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answered{ResponseWriter: w}
	o.h.ServeHTTP(a, r)
	if a.status >= http.StatusInternalServerError && !lives(context.WithoutCancel(r.Context()), o.q) {
		o.end(fmt.Errorf("the queue has ended: %w", queue.ErrClosed))
	}
}

// answered is an answer whose status is known.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// readDevices reads the file of --devices.
func (f *serveFlags) readDevices(t *tool) (all []relay.Device, err error) {
	if f.devices == "" {
		return nil, nil
	}
	data, err := readWhole(t.in, f.devices)
	if err != nil {
		return nil, fmt.Errorf("--devices: %w", err)
	}
	at := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(string(data)))
	lines.Buffer(nil, maxFile+1)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
			continue
		case len(words) != 2:
			return nil, fmt.Errorf("--devices: %s: line %d: must be a name, a space and a key", f.devices, n)
		case at[words[0]] > 0:
			return nil, fmt.Errorf("--devices: %s: line %d: device %q is in line %d too", f.devices, n, words[0], at[words[0]])
		}
		at[words[0]] = n
		all = append(all, relay.Device{Name: words[0], Key: words[1]})
	}
	return all, lines.Err()
}

// addDevices adds those devices that are not there. One that somebody else adds meanwhile gets what
// is said of it here.
func addDevices(ctx context.Context, q *queue.Queue, devices []relay.Device) error {
	known := map[string]bool{}
	names, err := devicesOf(ctx, q)
	for _, name := range names {
		known[name] = true
	}
	for _, d := range devices {
		if err == nil && !known[d.Name] {
			if err = relay.PutDevice(ctx, q, d); err != nil {
				err = fmt.Errorf("--devices: device %q: %w", d.Name, err)
			}
		}
	}
	return err
}

// tlsConfig returns what a server needs for https, nil without files.
func tlsConfig(cert, key string) (*tls.Config, error) {
	if cert == "" {
		return nil, nil
	}
	pair, err := certificateIn(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12}, nil
}

// certificateIn returns the certificate in a file, with its key in another.
func certificateIn(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	return &pair, nil
}
