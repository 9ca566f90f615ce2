package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// relayFlags are what the flags say.
type relayFlags struct {
	key, serverKey string
	cert, certKey  string // of this device
	ca             string
	keep           time.Duration
	create         bool
	options        relay.Options
}

func relayCommand(t *tool) *cobra.Command {
	f := &relayFlags{}
	cmd := &cobra.Command{
		Use:   "relay FILE --to URL --server NAME --device NAME --queue QUEUE",
		Short: "Pass the jobs of a queue on to a server",
		Long: `Pass the jobs of a queue on to a server, each once, and those of a group in order. On the
server errand serve --relay takes them, or a program. A job that the server has taken is
done here; one that it refuses is a dead letter, which says why. While the server cannot
be reached, or has no room, jobs wait and use up nothing: errand jobs why and errand
status say for what.

--key is the file with the private key of this device, see errand devices new-key. The
server knows the device by its name and the public half. --server-key is the public key of
the server, as a line or in a file; it is not needed if both sides have the same key.
With mutual TLS neither is needed: --tls-cert and --tls-key are those of this device, which
are read again for each connection, and the server was told --mtls by errand devices add.
--server is not the name in the certificate of the server: that has the host of --to.

--device, --server and --streams stay as they are from the first start on. Jobs that were
passed on are kept for --keep, so that they can be sent again if the server was put back
to an older copy of its file: see errand relay missing. --keep becomes the retention of
the queue at the first start. Later errand queues set changes it.

It runs until it is stopped: SIGTERM, SIGHUP or an interrupt ends it, with status 0. No
other worker may run jobs of the queue. A file that is called missing or resend needs a
path, as in ./missing.`,
		Example: "  errand relay device.db --to http://127.0.0.1:8443/relay --server jobs.example.org --device pump-17 --key pump-17.key --server-key hub.pub --queue up\n" +
			"  errand relay device.db --to https://hub.example.org/relay --server jobs.example.org --device pump-17 --tls-cert pump-17.pem --tls-key pump-17-key.pem --tls-ca ca.pem --queue up",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), t, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.options.URL, "to", "", "the `URL` where the server takes jobs, of https unless it is this machine (required)")
	flags.StringVar(&f.options.Server, "server", "", "the `NAME` of the server (required)")
	flags.StringVar(&f.options.Device, "device", "", "the `NAME` by which the server knows this device (required)")
	flags.StringVar(&f.key, "key", "", "the `FILE` with the key of this device")
	flags.StringVar(&f.cert, "tls-cert", "", "the `FILE` with the certificate of this device, in place of --key")
	flags.StringVar(&f.certKey, "tls-key", "", "the `FILE` with the key of the certificate")
	flags.StringVar(&f.ca, "tls-ca", "", "trust the servers of the authorities in this `FILE`, and no others")
	flags.StringVar(&f.serverKey, "server-key", "", "the public `KEY` of the server, or the name of a file")
	flags.StringVar(&f.options.Queue, "queue", "", "the queue whose jobs are passed on (required)")
	flags.IntVar(&f.options.Streams, "streams", 4, "how many requests are under way at a time, up to 64")
	flags.DurationVar(&f.keep, "keep", 7*24*time.Hour, "how long jobs that were passed on are kept (0: not at all)")
	flags.BoolVar(&f.create, "create", false, "make the file if there is none, or nothing in it")
	require(cmd, "to", "server", "device", "queue")
	cmd.MarkFlagsOneRequired("key", "tls-cert")
	cmd.MarkFlagsMutuallyExclusive("key", "tls-cert")
	cmd.MarkFlagsMutuallyExclusive("server-key", "tls-cert")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	completeArgs(cmd, nil)
	completeFlag(cmd, "queue", queuesOf)
	cmd.AddCommand(relayMissingCommand(t), relayResendCommand(t))
	return cmd
}

func (f *relayFlags) run(ctx context.Context, t *tool, path string) (err error) {
	o := &f.options
	switch {
	case o.Streams < 1:
		return errors.New("--streams must be at least 1")
	case f.keep < 0:
		return errors.New("--keep must not be negative")
	}
	if f.serverKey != "" {
		if o.ServerKey, err = t.publicOf("server-key", f.serverKey); err != nil {
			return err
		}
	}
	if f.key != "" {
		err = f.signs() // what is wrong would be said only when there is a job
	}
	if err == nil {
		o.Client, err = tlsClient(f.cert, f.certKey, f.ca, o.Streams)
	}
	if err != nil {
		return err
	}
	o.Keep = cmp.Or(f.keep, -1)
	t.errs.Writer = &oneByOne{w: t.errs.Writer} // logs of all streams
	o.Logger = slog.New(slog.NewTextHandler(t.errs, nil))
	ctx, stop := heedSignals(ctx)
	defer stop()
	return t.writing(ctx, path, f.create, func(q *queue.Queue) error {
		w := queue.NewWorker(q, &queue.WorkerOptions{Queues: []string{o.Queue}, Logger: o.Logger})
		if err := relay.Forward(w, o); err != nil {
			return err
		}
		err := t.show(map[string]string{"queue": o.Queue, "to": o.URL}, func(p *printer) {
			p.printf("passing on the jobs of queue %s to %s\n", safe(o.Queue), safe(o.URL))
		})
		if err != nil {
			return err
		}
		return w.Run(ctx)
	})
}

// tlsClient returns a client with a certificate of its own, or which trusts other authorities than the system, or
// nil without files. It keeps a connection for each stream.
func tlsClient(cert, key, ca string, streams int) (*http.Client, error) {
	if cert == "" && ca == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificateIn(cert, key) }
		if _, err := load(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = load // for each connection, as certificates are renewed
	}
	if ca != "" {
		var err error
		if config.RootCAs, err = authorities("tls-ca", ca); err != nil {
			return nil, err
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxIdleConnsPerHost = config, streams
	return &http.Client{Transport: transport}, nil
}

// authorities returns the certificates of authorities in a file.
func authorities(flag, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--%s: %s has no certificate in PEM", flag, path)
	}
	return all, nil
}

var signingKey = regexp.MustCompile(`^(` + privateKey + `|` + sharedKey + `)[0-9a-f]{64}
?
?$`)

// signs sets the key of the device. It wants one that signs.
func (f *relayFlags) signs() error {
	for _, kind := range []string{publicKey, privateKey, sharedKey} {
		if strings.HasPrefix(f.key, kind) {
			return errors.New("--key: must be the name of a file, which this command reads again")
		}
	}
	line, err := os.ReadFile(f.key)
	switch {
	case err != nil:
		return fmt.Errorf("--key: %w", err)
	case strings.HasPrefix(string(line), publicKey):
		return fmt.Errorf("--key: %s has a public key, which cannot sign: the device needs the file with its private key, see errand devices new-key", f.key)
	case !signingKey.Match(line):
		return fmt.Errorf("--key: %s has no key: want a line that begins with %s or %s and has 64 characters of lower-case hex", f.key, privateKey, sharedKey)
	case f.serverKey == "" && !strings.HasPrefix(string(line), sharedKey):
		return errors.New("--server-key is needed, as the key of this device is not that of both sides")
	}
	f.options.Key = relay.KeyFile(f.key)
	return nil
}

func relayMissingCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "missing FILE",
		Short: "List the jobs that a server lacks after it was put back",
		Long: `List the jobs that a server had taken, and lacks since it was put back to an older copy of
its file. A device learns of it when it next asks the server, which takes nothing of it
then until errand devices accept. errand relay resend sends the jobs again.

NOT LISTED are the numbers of requests whose jobs, if they had any, are not in this file
any more, see --keep of errand relay.`,
		Example: "  errand relay missing device.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, relayed, err := t.missing(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return t.show(map[string][]relay.Lack{"missing": all}, func(p *printer) {
				if !relayed {
					p.printf("%s", noRelayed)
					return
				}
				t.printMissing(p, all)
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

const noRelayed = "this file has no relayed queue\n"

// missing returns what servers lack, in a list that is not nil, and whether the file has a relayed queue.
func (t *tool) missing(ctx context.Context, path string) (all []relay.Lack, relayed bool, err error) {
	err = t.reading(ctx, path, func(q *queue.Queue) error {
		queues, err := relay.Queues(ctx, q)
		if err != nil {
			return err
		}
		got, err := relay.Missing(ctx, q)
		all, relayed = append([]relay.Lack{}, got...), len(queues) > 0 || len(got) > 0
		return err
	})
	return all, relayed, err
}

func (t *tool) printMissing(p *printer, all []relay.Lack) {
	if len(all) == 0 {
		p.printf("no server is known to lack jobs\n")
		return
	}
	list := table{head: []string{"QUEUE", "STREAM", "FOUND", " JOBS", "NOT LISTED"}}
	jobs := table{head: []string{"ID", "QUEUE"}}
	for i := range all {
		l := &all[i]
		list.add(text(l.Queue), text(l.Stream), text(when(l.FoundAt)), number(len(l.Jobs)), text(notListed(l)))
		for _, id := range l.Jobs {
			jobs.add(text(id.String()), text(l.Queue))
		}
	}
	list.print(p, t.out)
	if len(jobs.rows) > 0 {
		p.printf("\n")
		jobs.print(p, t.out)
	}
}

func notListed(l *relay.Lack) string {
	if l.To == 0 {
		return "-"
	}
	return fmt.Sprintf("requests %d to %d", l.From, l.To)
}

func relayResendCommand(t *tool) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "resend FILE",
		Short: "Send the jobs again that a server lacks",
		Long: `Enqueue the jobs again that errand relay missing lists, as new jobs of their queue, so that
errand relay sends them. What the file does not have any more cannot be sent. The list is
empty then. The jobs come after those of their groups that wait. A job that is on the server all the same is done twice there. It asks before,
or wants --yes.`,
		Example: "  errand relay resend device.db --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, relayed, err := t.missing(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			jobs := 0
			for i := range all {
				jobs += len(all[i].Jobs)
			}
			if jobs > 0 {
				if err := t.confirm(yes, "enqueue %s again", jobsText(jobs)); err != nil {
					return err
				}
			}
			n := 0
			err = t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				n, err = relay.Resend(cmd.Context(), q)
				return err
			})
			return t.inPart(cmd.Context(), n, map[string]int{"resent": n}, func(p *printer) {
				if !relayed {
					p.printf("%s", noRelayed)
					return
				}
				p.printf("%s enqueued again\n", jobsText(n))
			}, err)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	completeArgs(cmd, nil)
	return cmd
}
