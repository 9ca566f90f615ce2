package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/kit"
)

// The program shows its queue to who knows the password, and to nobody else.
func TestRun(t *testing.T) {
	lines, restore := kit.LogLines()
	defer restore()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, filepath.Join(t.TempDir(), "jobs.db"), "127.0.0.1:0", "secret") }()
	at := "http://" + kit.After(lines, "listening addr=") + "/errand/"
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
