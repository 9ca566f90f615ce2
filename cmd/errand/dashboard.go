package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
)

func dashboardCommand(t *tool) *cobra.Command {
	d := &oneTime{tokens: map[string]bool{}, sessions: map[string]bool{}}
	var listen string
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "dashboard FILE",
		Short: "Serve pages that show a queue, on this machine",
		Long: `Serve pages that show a queue and act on it, to a browser on this machine. The address that is
printed lets in one browser, once. Enter prints another one.

The file is opened for reading. The first action that is confirmed opens it for writing.`,
		Example: `  errand dashboard jobs.db`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.json {
				return errors.New("--json: a dashboard has pages; they are there as JSON by ?format=json")
			}
			host, _, err := net.SplitHostPort(listen)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return errors.New("--listen: must be a loopback address and a port, as 127.0.0.1:8080: whoever else can reach it would see the queue")
			}
			return t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return t.serve(cmd.Context(), q, args[0], listen, readOnly, d)
			})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to listen: a loopback address; port 0 is any that is free")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "never write")
	completeArgs(cmd, nil)
	return cmd
}

// serve serves the dashboard until ctx ends.
func (t *tool) serve(ctx context.Context, q *queue.Queue, path, listen string, readOnly bool, d *oneTime) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	d.host, d.cookie = l.Addr().String(), fmt.Sprintf("errand-%d", l.Addr().(*net.TCPAddr).Port)
	var writer onceOpen
	defer writer.close()
	o := &dashboard.Options{Auth: d.identity, Name: filepath.Base(path), Logger: t.logger(), Writer: func(ctx context.Context) (*queue.Queue, error) {
		return writer.open(ctx, path, t)
	}}
	d.role = dashboard.Admin
	if readOnly {
		d.role, o.Writer = dashboard.Viewer, nil
	}
	server := &http.Server{Handler: d.guard(dashboard.Handler(q, o)), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	fmt.Fprintf(t.out, "The dashboard of %s, for one browser:\n%s\n", path, d.address())
	go func() {
		for lines := bufio.NewScanner(t.in); lines.Scan(); {
			fmt.Fprintln(t.out, d.address())
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	return server.Shutdown(last)
}

// onceOpen opens a file for writing when that is first asked for.
type onceOpen struct {
	mu sync.Mutex
	q  *queue.Queue
}

func (o *onceOpen) open(ctx context.Context, path string, t *tool) (*queue.Queue, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.q != nil {
		return o.q, nil
	}
	q, err := queue.Open(ctx, path, &queue.Options{Logger: t.logger(), SQLite: queue.SQLiteOptions{Existing: true}})
	if err == nil {
		o.q = q
	}
	return q, err
}

func (o *onceOpen) close() {
	if o.q != nil {
		_ = o.q.Close()
	}
}

// oneTime lets browsers in by an address that works once.
type oneTime struct {
	host, cookie string
	role         dashboard.Role

	mu               sync.Mutex
	tokens, sessions map[string]bool
}

// address returns an address that lets one browser in.
func (d *oneTime) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	token := rand.Text()
	d.tokens[token] = true
	return "http://" + d.host + "/?token=" + token
}

var errOutside = errors.New("this browser was not let in")

// identity is the Auth of the dashboard.
func (d *oneTime) identity(r *http.Request) (dashboard.Identity, error) {
	c, err := r.Cookie(d.cookie)
	if err != nil {
		return dashboard.Identity{}, errOutside
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.sessions {
		if subtle.ConstantTimeCompare([]byte(s), []byte(c.Value)) == 1 {
			return dashboard.Identity{Name: userName(), Role: d.role}, nil
		}
	}
	return dashboard.Identity{}, errOutside
}

func userName() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return "command"
}

// guard refuses requests for other hosts, as pages of others may have their names lead here, and
// takes tokens.
func (d *oneTime) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(d.host)
	hosts := []string{d.host, "localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(hosts, strings.ToLower(r.Host)) {
			http.Error(w, "This is not the address of the dashboard.", http.StatusMisdirectedRequest)
			return
		}
		token := r.URL.Query().Get("token")
		if token == "" || r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		d.mu.Lock()
		known := d.tokens[token]
		delete(d.tokens, token)
		session := rand.Text()
		if known {
			d.sessions[session] = true
		}
		d.mu.Unlock()
		if !known {
			http.Error(w, "This address has been used. Press Enter where the command runs: it prints another one.", http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
}
