package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/webhook"
)

// listener is a receiver for development.
type listener struct {
	t         *tool
	secrets   []webhook.Secret
	tolerance time.Duration
	statuses  []int // nil: 200 for what is verified
	delay     time.Duration
	count     int // 0: no end
	body      bool
	confirm   bool

	over   context.Context //nolint:containedctx // ends the delays of all requests
	enough func()          // ends over

	mu       sync.Mutex
	answered int // from the script
	seen     int
	err      error // of the output
}

func listenCommand(t *tool) *cobra.Command {
	l := &listener{t: t}
	var address, secretFile string
	var statuses []string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks, and print what comes: for development",
		Long: `Receive webhooks, and print a line for each: when it came, its ID and attempt, whether
its signature and time are right or what is wrong, what was answered, and how large it
is. With --json that is an object a line. It ends when it is interrupted, or after
--count requests, or --for a time, with status 0.

--secret-file has the secrets that verify, one a line (- is standard input): a whsec_,
or the public whpk_ of a private key. Without it nothing is verified.

--status is a script of answers, of which the last is repeated: with 500,500,200 the
first two requests fail. What is not verified is answered with 400, and takes nothing
from the script.

Messages of Amazon SNS's form are shown with their type, and a request for confirmation
with the URL to visit. --confirm visits it.`,
		Example: "  errand webhooks listen --secret-file secret --status 500,500,200 --delay 10ms",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if l.statuses, err = parseStatuses(statuses); err != nil {
				return err
			}
			if l.delay < 0 || l.tolerance < 0 || l.count < 0 || lasts < 0 {
				return errors.New("--delay, --tolerance, --count and --for must not be negative")
			}
			if secretFile != "" {
				if l.secrets, err = readSecrets(cmd.InOrStdin(), secretFile); err != nil {
					return err
				}
				if len(l.secrets) == 0 {
					return fmt.Errorf("%s: has no secret", secretFile)
				}
			}
			ctx := cmd.Context()
			if lasts > 0 {
				var end func()
				ctx, end = context.WithTimeout(ctx, lasts)
				defer end()
			}
			return l.listen(ctx, address)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "addr", "127.0.0.1:9000", "listen on this address; with port 0 on a free one")
	flags.StringVar(&secretFile, "secret-file", "", "verify with the secrets in this `FILE`, or - for standard input")
	flags.StringSliceVar(&statuses, "status", nil, "the statuses to answer, as in 500,500,200")
	flags.DurationVar(&l.delay, "delay", 0, "wait so long before an answer")
	flags.DurationVar(&l.tolerance, "tolerance", webhook.DefaultTolerance, "how far the time of a request may be from now")
	flags.IntVar(&l.count, "count", 0, "end after so many requests (default: when interrupted)")
	flags.DurationVar(&lasts, "for", 0, "end after this time (default: when interrupted)")
	flags.BoolVar(&l.body, "body", false, "print the bodies too")
	flags.BoolVar(&l.confirm, "confirm", false, "visit the URL that confirms a subscription")
	return cmd
}

func parseStatuses(all []string) (out []int, err error) {
	for _, s := range all {
		n, err := strconv.Atoi(s)
		if err != nil || n < 200 || n > 599 {
			return nil, fmt.Errorf("--status %q: must be between 200 and 599", s)
		}
		out = append(out, n)
	}
	return out, nil
}

// stopFor is how long requests that are answered may take after the end.
const stopFor = 5 * time.Second

// listen serves until ctx ends, or there were enough requests.
func (l *listener) listen(ctx context.Context, address string) error {
	var on net.ListenConfig
	socket, err := on.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	l.over, l.enough = context.WithCancel(ctx)
	defer l.enough()
	l.print(map[string]string{"listening": socket.Addr().String()}, "listening on http://"+socket.Addr().String())
	server := &http.Server{
		Handler: l, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // clients come and go
	}
	err = serveUntil(l.over, server, socket, stopFor)
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(err, l.err)
}

// print writes a line.
func (l *listener) print(v any, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	switch {
	case err != nil:
	case l.t.json:
		err = writeJSON(l.t.out, v, false)
	default:
		_, err = fmt.Fprintf(l.t.out, "%s\n", line)
	}
	if l.err = err; err != nil {
		l.enough()
	}
}

// received is a request that came.
type received struct {
	At       time.Time `json:"at"`
	ID       string    `json:"id,omitempty"`
	Attempt  string    `json:"attempt,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Path     string    `json:"path"`
	Verified bool      `json:"verified"`
	Why      string    `json:"why,omitempty"` // it is not verified
	Status   int       `json:"status"`
	Bytes    int       `json:"bytes"`
	// Of a request in the form of Amazon SNS, one with a Type. Confirmed is what came of the visit
	// to SubscribeURL.
	Type         string `json:"sns_type,omitempty"`
	Topic        string `json:"sns_topic,omitempty"`
	Subscription string `json:"sns_subscription,omitempty"`
	Message      string `json:"sns_message_id,omitempty"`
	Raw          bool   `json:"sns_raw,omitempty"`
	Subject      string `json:"sns_subject,omitempty"`
	SubscribeURL string `json:"subscribe_url,omitempty"`
	Confirmed    string `json:"confirmed,omitempty"`

	Body *string `json:"body,omitempty"`
}

// ServeHTTP receives a webhook.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := received{At: time.Now().UTC(), ID: r.Header.Get(webhook.HeaderID), Path: r.URL.Path}
	got.Attempt, got.Endpoint = r.Header.Get(webhook.HeaderAttempt), r.Header.Get(webhook.HeaderEndpoint)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, webhook.MaxBody))
	got.Bytes = len(body)
	if l.body {
		text := string(body)
		got.Body = &text
	}
	got.Verified, got.Why = l.verify(r, body, err)
	got.readSNS(r.Header, body)
	got.Status = l.answer(&got)
	if l.delay > 0 {
		wait := time.NewTimer(l.delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-l.over.Done():
		case <-r.Context().Done(): // the sender waits no longer
		}
	}
	if l.confirm && got.Why == "" {
		got.visit(l.over)
	}
	w.WriteHeader(got.Status)
	if got.Why != "" {
		_, _ = io.WriteString(w, "not verified\n") // why is not the sender's business
	}
	l.print(&got, got.line())
	l.mu.Lock()
	l.seen++
	last := l.seen == l.count
	l.mu.Unlock()
	if last {
		l.enough()
	}
}

// verify reports whether a request is signed by one of the secrets, and else why it is not
// taken. Without secrets it is taken, and not verified.
func (l *listener) verify(r *http.Request, body []byte, read error) (bool, string) {
	switch {
	case r.Method != http.MethodPost:
		return false, "method " + r.Method
	case read != nil:
		return false, "body: " + read.Error()
	case len(l.secrets) == 0:
		return false, ""
	}
	again := r.Clone(r.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if _, err := webhook.Verify(again, l.secrets, l.tolerance); err != nil {
		return false, strings.TrimPrefix(err.Error(), "webhook: ")
	}
	return true, ""
}

// answer returns the status for a request.
func (l *listener) answer(got *received) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case got.Why != "":
		return http.StatusBadRequest
	case len(l.statuses) == 0:
		return http.StatusOK
	}
	status := l.statuses[min(l.answered, len(l.statuses)-1)]
	l.answered++
	return status
}

// line returns a request as text.
func (got *received) line() string {
	parts := []string{when(got.At), orDash(got.ID), "attempt " + orDash(got.Attempt)}
	switch {
	case got.Why != "":
		parts = append(parts, "not verified: "+got.Why)
	case got.Verified:
		parts = append(parts, "verified")
	default:
		parts = append(parts, "not checked")
	}
	parts = append(parts, "answered "+strconv.Itoa(got.Status), strconv.Itoa(got.Bytes)+" bytes")
	if got.Type != "" {
		parts = slices.Concat(parts, got.words())
	}
	if got.Body != nil {
		parts = append(parts, *got.Body)
	}
	for i := range parts {
		parts[i] = safe(parts[i])
	}
	return strings.Join(parts, "  ")
}
