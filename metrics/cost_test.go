package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/metrics"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// A program that does not import the package does not contain it, nor what serves it.
func TestUnused(t *testing.T) {
	symbols := func(program string) string {
		file := filepath.Join(t.TempDir(), "program")
		if out, err := exec.Command("go", "build", "-o", file, "../examples/"+program).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command("go", "tool", "nm", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for program, want := range map[string]bool{"metrics": true, "quickstart": false} {
		all := symbols(program)
		for _, name := range []string{"errand/metrics.", "net/http."} {
			if strings.Contains(all, name) != want {
				t.Errorf("the symbols of %s contain %s: %t, want %t", program, name, !want, want)
			}
		}
		if strings.Contains(all, "opentelemetry") {
			t.Errorf("%s contains OpenTelemetry", program)
		}
	}
}

// BenchmarkWrite is to be compared with BenchmarkStats: the same file of 1,000 lanes.
func BenchmarkWrite(b *testing.B) {
	q, path := open(b)
	many(b, q, 1000)
	for b.Loop() {
		var text strings.Builder
		if err := metrics.Write(b.Context(), &text, q, &metrics.Options{File: path}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStats(b *testing.B) {
	q, _ := open(b)
	many(b, q, 1000)
	for b.Loop() {
		if _, err := q.Stats(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// asked is a store that counts how often it is asked for entries, and may fail then.
type asked struct {
	entryStore
	entries atomic.Int64
	err     error
}

type entryStore interface {
	storage.Store
	storage.Topics
}

func (a *asked) Entries(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
	a.entries.Add(1)
	if a.err != nil {
		return nil, 0, a.err
	}
	return a.entryStore.Entries(ctx, class, family, after, limit)
}

// Where nothing is relayed, a look reads entries twice, and finds none. If entries cannot be read, the other
// numbers are there.
func TestWrite_relayUnused(t *testing.T) {
	store := &asked{entryStore: storagetest.NewMemory().Open().(entryStore)}
	q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, store.err = range []error{nil, errors.New("the disk does not answer")} {
		store.entries.Store(0)
		if text := write(t, q, nil); strings.Contains(text, "relay") || !strings.Contains(text, "errand_up 1\n") || store.entries.Load() != 2 {
			t.Errorf("%d reads, and the text is %s", store.entries.Load(), text)
		}
	}
}

// BenchmarkWrite_devices is of a server with 10,000 devices of four streams each.
func BenchmarkWrite_devices(b *testing.B) {
	q, path := open(b)
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		b.Fatal(err)
	}
	var all []storage.Entry
	for i := range 10_000 {
		name := fmt.Sprintf("device-%04d", i)
		all = append(all, storage.Entry{Class: "relay-device", Name: name, Doc: []byte(`{"key":"ed25519-public:` + strings.Repeat("0", 64) + `"}`)})
		for j := range 4 { // an empty stream
			all = append(all, storage.Entry{Class: "relay-stream", Name: fmt.Sprintf("%s/%032x", name, j), Doc: append([]byte{1}, make([]byte, 42)...)})
		}
	}
	for part := range slices.Chunk(all, 1000) {
		if _, err := topics.PutEntries(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if text := write(b, q, &metrics.Options{File: path}); !strings.Contains(text, `errand_relay_devices{state="active"} 10000`) {
			b.Fatal(text)
		}
	}
}
