package apitest

import (
	"context"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// meets are the rows of the first table of docs/outages.md, by what a device meets.
var meets = map[string][]error{
	"no route; network unreachable; no server for names answers": {
		dialled(syscall.ENETUNREACH), dialled(syscall.ENETDOWN),
		lookedUp(&net.DNSError{Err: "i/o timeout", Name: "api.example", IsTimeout: true}),
	},
	"a name that does not exist; connection refused; not connected in time; 511": {
		lookedUp(&net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}),
		dialled(syscall.ECONNREFUSED),
		posted(&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}),
		status(511, 0),
	},
	"a certificate that is not accepted":    {posted(x509.UnknownAuthorityError{}), posted(x509.CertificateInvalidError{Reason: x509.Expired})},
	"a captive portal: 302":                 {status(302, 0)},
	"401 (the token has expired), 403, 407": {status(401, 0), status(403, 0), status(407, 0)},
	"429, 503":                              {status(429, 30*time.Second), status(429, 0), status(503, 30*time.Second), status(503, 0)},
	"no answer in time":                     {posted(context.DeadlineExceeded), posted(os.ErrDeadlineExceeded)},
	"400, 404, 422":                         {status(400, 0), status(404, 0), status(422, 0)},
}

func posted(err error) error { return &url.Error{Op: "Post", URL: "https://api.example/", Err: err} }

func dialled(errno syscall.Errno) error {
	return posted(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)})
}

func lookedUp(err *net.DNSError) error {
	return posted(&net.OpError{Op: "dial", Net: "tcp", Err: err})
}

func status(code int, after time.Duration) error {
	return &policy.StatusError{Status: code, After: after}
}

// What docs/outages.md says of each thing that a device meets is what happens: to a job
// that meets it once, and to the jobs of its kind.
//
//errand:shows what a device meets | | each row of the table in [offline](../outages.md)
func TestOffline_Table(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, filepath.Join(root, "docs/outages.md")), "\n| it meets |")
	table, _, _ := strings.Cut(rest, "\n\n")
	rows := slices.Collect(strings.Lines(table))[2:]
	if len(rows) != len(meets) {
		t.Errorf("the table has %d rows, want %d", len(rows), len(meets))
	}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		errs, ok := meets[cells[0]]
		if !ok || len(cells) != 3 {
			t.Errorf("no test is about the row %q", row)
		}
		for _, err := range errs {
			t.Run(cells[0], func(t *testing.T) { meet(t, err, cells[1], cells[2]) })
		}
	}
}

// meet has the first attempts of some jobs meet an error, and compares with the table.
func meet(t *testing.T, err error, happens, costs string) {
	bubbled(t, onDisk(t), func(t *testing.T, a *agenda) {
		const jobs = 5
		var mu sync.Mutex
		met, asked, retries := 0, 0, map[int]int{}
		w := errand.NewWorker(a.Queue, &errand.WorkerOptions{Concurrency: 1})
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			mu.Lock()
			defer mu.Unlock()
			if job.Attempt == 1 {
				met++
				return err
			}
			retries[job.Args.N] = job.Retry
			return nil
		}, errand.HandlerOptions{OnUnauthorized: func(context.Context) error {
			mu.Lock()
			asked++
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		}})
		for i := range jobs {
			must(a.Enqueue(t.Context(), note{N: i}, nil))
		}
		stop := run(t, w)
		defer func() { check(stop()) }()
		synctest.Wait()
		held := 0 // after how many attempts
		if len(must(a.Holds(t.Context()))) > 0 {
			mu.Lock()
			held = met
			mu.Unlock()
		}
		after := map[string]int{"held at once": 1, "held after five": 5}
		if want := after[prefixOf(happens, after)]; held != want {
			t.Errorf("%v: held after %d attempts, the page says %q", err, held, happens)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if calls := strings.Contains(happens, "OnUnauthorized"); calls != (asked > 0) {
			t.Errorf("%v: OnUnauthorized was called %d times, the page says %q", err, asked, happens)
		}
		dead := must(a.DeadLetters().List(t.Context(), errand.JobFilter{Reason: "permanent"}, nil))
		got := map[string]int{"the job": len(dead.Jobs)}
		for _, n := range retries {
			got[map[bool]string{true: "nothing", false: "a retry"}[n == 0]]++
		}
		if got[costs] != jobs {
			t.Errorf("%v costs %v, the page says %s", err, got, costs)
		}
	})
}

// prefixOf returns the key that text begins with, or "".
func prefixOf(text string, keys map[string]int) string {
	for key := range keys {
		if strings.HasPrefix(text, key) {
			return key
		}
	}
	return ""
}
