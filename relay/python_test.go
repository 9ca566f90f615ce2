package relay_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/errandq/errand/relay"
)

// A device that was written in Python from docs/relay.md has each of its jobs on the server once: also if an answer
// is lost, and if none comes any more and the device starts again.
//
//errand:shows a device in another language | | a device in Python, written from the page, has each job on the server once, also after an answer that was lost and after a restart
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3: ", err)
	}
	s := serve(t, nil, nil)
	key := relay.NewSharedKey()
	if err := relay.PutDevice(t.Context(), s.q, relay.Device{Name: deviceName, Key: key, Rights: relay.Rights{Kinds: []string{"measure"}}}); err != nil {
		t.Fatal(err)
	}
	// The requests from the number from on, and before the number to, have their effect and no answer.
	var n, from, to atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := n.Add(1); from.Load() <= i && i < to.Load() {
			s.h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		s.h.ServeHTTP(w, r)
	}))
	defer web.Close()
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const forEver = 1 << 30
	for _, c := range []struct {
		name     string
		kinds    []string
		from, to int64 // the first request has the number 1; each begins with a check and an ask
		status   int
		prints   string
		jobs     int // on the server
	}{
		{"plain", []string{"measure", "alarm", "measure"}, 0, 0, 0, "2 done, 1 refused", 2},
		{"an answer is lost", []string{"measure", "measure"}, 3, 4, 0, "4 done, 1 refused", 4},
		{"no answer comes any more", []string{"measure", "measure"}, 3, forEver, 1, "4 done, 1 refused, 2 waiting", 6},
		{"a restart", nil, 0, 0, 0, "6 done, 1 refused", 6},
	} {
		n.Store(0)
		from.Store(c.from)
		to.Store(c.to)
		args := append([]string{"testdata/device.py", web.URL, serverName, deviceName, keyFile, filepath.Join(dir, "device.db")}, c.kinds...)
		cmd := exec.CommandContext(t.Context(), python, args...)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != c.prints || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.status {
			t.Fatalf("%s: %v, it prints %q: want status %d and %q", c.name, err, got, c.status, c.prints)
		}
		s.wantJobs(c.jobs)
	}
}
