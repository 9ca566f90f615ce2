package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The program shows its queue to who knows the password, and to nobody else.
func TestRun(t *testing.T) {
	r, w := io.Pipe()
	log.SetOutput(w)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, filepath.Join(t.TempDir(), "jobs.db"), "127.0.0.1:0", "secret") }()
	line := make([]byte, 1024)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	log.SetOutput(io.Discard)
	at := regexp.MustCompile(`http://\S+`).FindString(string(line[:n]))
	for password, want := range map[string]int{"secret": 200, "": 401, "guess": 401} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("ops", password)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want || (want == 200) != strings.Contains(string(page), "ops, operator") || answer.Body.Close() != nil {
			t.Errorf("%q: %d %s, %v", password, answer.StatusCode, page, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
