// Package dashboard serves pages on which people see what a queue does, and act on it. They need
// no JavaScript and nothing from elsewhere. A program that does not import the package does not
// contain it.
//
// Nobody may enter unless [Options].Auth says so. A [Viewer] sees no args, an [Operator] acts, and
// an [Admin] sees and changes args.
package dashboard

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/errandq/errand"
)

// Options configure a [Handler]. Auth is needed; the zero value of the others means defaults.
type Options struct {
	// Auth says who a request is from. It is called for each request but those for the style
	// and the script, so it has to be fast. An [AuthError] is shown on the page that refuses the
	// request. Another error is told to nobody: the request is answered with 401. If nil, each
	// request is answered with 403.
	Auth func(r *http.Request) (Identity, error)
	// Origins are addresses from which requests may come besides that of the page itself, as
	// "https://ops.example.com". A proxy that changes Host needs the one that people see.
	Origins []string
	// Name is what the pages are about, as a host or a file. If empty, "errand".
	Name string
	// Writer returns the queue on which actions are done, if it is another one than that of the
	// pages. It is called for each action that is confirmed. If nil, it is the same.
	Writer func(ctx context.Context) (*errand.Queue, error)
	// ReadOnly lets nobody act, whatever the role. If false, roles say who may.
	ReadOnly bool
	// Hidden are more parts of names of fields whose values are hidden from all but an [Admin]:
	// in args, also those before a change, headers, checkpoints, results, messages, and in the
	// texts of errors, stacks, causes, holds and progress. Only
	// letters and digits count, in any case. Hidden are in any case names with password,
	// passwd, passphrase, pwd, secret, token, api_key, access_key, authorization, bearer,
	// signature, cookie, credential, private_key, ssn, card_number, cvv and iban, and the
	// names pass and auth; also where a text has them, as in the query of a URL, with the user
	// in a URL. Hidden are in args the fields with the tag `errand:"secret"` too, see
	// [errand.Args]. A worker that runs shows which these are. Until the handler has seen one
	// that knows the type of a kind, all values of the args of the kind are hidden, and all
	// names in them that do not look like those of fields. [errand.HandleRaw] knows no type. If
	// nil, no more.
	Hidden []string
	// OnAction is called after each action that was confirmed, before its outcome is shown, but
	// not if its form comes back with what is wrong in it. A panic is logged. If nil, none is.
	OnAction func(Action)
	// Logger gets a line for each action, with who did it. If nil, slog.Default().
	Logger *slog.Logger
}

// readFor is how long a page may read.
const readFor = 2 * time.Second

// withTimeout is [context.WithTimeout]. Tests by the real clock have no limits of time.
var withTimeout = context.WithTimeout

// board is the handler.
type board struct {
	q     *errand.Queue
	o     Options
	cross *http.CrossOriginProtection
	looks looks
	live  live
	said  atomic.Int64 // when the log said last that nobody may enter, in nanoseconds since 1970

	ledger  ledger
	keys    keys
	secrets secretKinds
	salt    []byte // see secretWas
	mode    mode
}

// Handler returns a handler of all pages of q. It serves them under any path that ends in "/",
// whether or not the path is stripped:
//
//	mux.Handle("/errand/", dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Basic(users)}))
//
// It has no goroutine of its own, and what it has begun for one request ends within seconds. It
// keeps what open pages show, up to 1,000 of them and 16 MiB: make one for each queue, not one for each request.
//
// An action is confirmed to the handler that has asked, and its outcome is kept there: several
// handlers behind one address need a proxy that keeps a browser to one of them.
//
// Handler panics with a [errand.FieldError] if an option is not as described there.
func Handler(q *errand.Queue, o *Options) http.Handler {
	b := &board{q: q, o: *cmp.Or(o, &Options{}), cross: http.NewCrossOriginProtection()}
	b.o.Name, b.o.Logger = cmp.Or(b.o.Name, "errand"), cmp.Or(b.o.Logger, slog.Default())
	for i, origin := range b.o.Origins {
		if err := b.cross.AddTrustedOrigin(origin); err != nil {
			panic(&errand.FieldError{Field: "origins[" + itoa(i) + "]", Value: origin, Limit: "must be a scheme and a host, as https://ops.example.com"})
		}
	}
	b.looks.q, b.live = q, newLive(q)
	b.secrets.q, b.salt, b.keys = q, newSalt(), newKeys(b.o.Hidden)
	return b
}

// request is a request of somebody who may enter.
type request struct {
	*http.Request
	b    *board
	who  Identity
	page *page
	up   string // the way from the page to the front, relative
	id   string // of the job in the path
	done string // the key of the outcome that the page shows; empty: it shows none

	begun time.Time // of an action, or of the question about it
	asked *question // that this is the answer to; nil if it is none

	start   time.Time // of reading the page
	seen    *look     // what the page shows, if it shows one
	nav     *look     // see around
	version int64     // of the file, before the page was read
	as      time.Time // when it was that
	open    bool      // the page is open, and there may be nothing new
	freshness
	print uint64 // of the job that the page is of; 0: none
}

// ServeHTTP implements [http.Handler].
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	at := strings.LastIndexByte(r.URL.Path, '/') + 1
	dir, name := r.URL.Path[:at], r.URL.Path[at:]
	if serveAsset(w, r, name) || toSlash(w, r) {
		return
	}
	x := &request{Request: r, b: b, page: pages[name]}
	x.takeDone()
	if strings.HasSuffix(dir, "/job/") && name != "" && (x.page == nil || isID(name)) { // else all pages are below /job/
		x.page, x.id, x.up = pages["job"], name, "../"
	}
	err := x.enter()
	switch {
	case err != nil:
	case x.page == nil:
		err = noPage(r)
	case r.Method == http.MethodPost && x.page.posts:
		err = x.checkForm(w)
	case x.page.posts || r.Method != http.MethodGet && r.Method != http.MethodHead:
		err = errMethod
	default:
		err = x.check()
	}
	if err != nil {
		x.fail(w, err)
		return
	}
	if x.asks() {
		x.tell(w)
		return
	}
	ctx, stop := withTimeout(r.Context(), readFor)
	defer stop()
	x.Request = x.WithContext(ctx)
	x.starts()
	if x.page.lives() {
		x.version, x.as, _ = b.live.now(ctx) // if it fails, so does what follows
	}
	data, err := x.page.read(x)
	if x.page.posts {
		b.looks.expire()
	}
	if err != nil {
		x.fail(w, err)
		return
	}
	x.render(w, http.StatusOK, data)
}

func isID(s string) bool {
	_, err := errand.ParseID(s)
	return err == nil
}

var (
	errClosed = &refusal{status: http.StatusForbidden, text: "This dashboard lets nobody in.",
		remedy: `Set dashboard.Options.Auth in the program: dashboard.Basic for names and passwords, dashboard.FromHeader behind a proxy that knows who it is, or dashboard.Anyone behind a door of your own.`}
	errNoRole = &refusal{status: http.StatusForbidden, text: "You have no role here.",
		remedy: "Options.Auth has to give you one: Viewer, Operator or Admin."}
	errMethod = &refusal{status: http.StatusMethodNotAllowed, text: "This cannot be asked for in this way.",
		remedy: "An action begins with a button on the page of a job, a queue or a schedule."}
)
