package storagetest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
)

func TestMemory_random(t *testing.T) {
	RunRandom(t, func(*testing.T) DB { return NewMemory() })
}

// What stores in memory lack.
const noClock, noLoss, noStarts, noPromoter = "a clock that can be set", "lost answers", "no storage.Marker", "storage.Promoter"

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) DB { return NewMemory() }, Lacking(noClock, noLoss, noStarts, noPromoter))
}

func TestMemory_bare(t *testing.T) {
	Run(t, func(*testing.T) DB { return bareDB{NewMemory()} }, Lacking(noClock, noLoss, noPromoter,
		"storage.Compacter", "storage.Handoff", "storage.Marker", "storage.Notifier", "storage.Peers", "storage.Publisher", "storage.Pulser",
		"storage.Scheduler", "storage.Timekeeper", "storage.Topics", "storage.Troubled", "storage.TxEnqueuer", "storage.Versioner", "storage.Historian", "storage.Auditor"))
}

func TestMemory_bareRandom(t *testing.T) {
	RunRandom(t, func(*testing.T) DB { return bareDB{NewMemory()} })
}

func TestMemory_narrow(t *testing.T) {
	Run(t, func(*testing.T) DB { return narrowDB{NewMemory()} }, Lacking(noClock, noLoss, noStarts))
}

func TestMemory_narrowRandom(t *testing.T) {
	RunRandom(t, func(*testing.T) DB { return narrowDB{NewMemory()} })
}

type narrowDB struct{ *Memory }

func (n narrowDB) Open() storage.Store { return n.OpenNarrow() }

func TestServer(t *testing.T) {
	Run(t, func(*testing.T) DB { return NewServer() }, Lacking(noLoss, noStarts, noPromoter))
}

func TestLossy(t *testing.T) {
	Run(t, func(*testing.T) DB { return NewLossy() }, Lacking(noClock, noStarts, noPromoter))
}

func TestLossy_random(t *testing.T) {
	RunRandom(t, func(*testing.T) DB { return NewLossy() })
}

// The cases know no bounds but those that the database tells.
func TestMemory_bounds(t *testing.T) {
	for name, b := range map[string]Bounds{"none": {}, "small": {10, 10, 10, 10, 10, 10}} {
		t.Run(name, func(t *testing.T) {
			lacks := []string{noClock, noLoss, noStarts, noPromoter}
			if b == (Bounds{}) {
				lacks = append(lacks, "a bound")
			}
			Run(t, func(*testing.T) DB {
				m := NewMemory()
				m.bounds = b
				return m
			}, Lacking(lacks...))
		})
	}
}

type bareDB struct{ *Memory }

func (b bareDB) Open() storage.Store { return b.OpenBare() }

// TestCases_quoteTheContract finds the words of each case in the comments of
// package storage.
func TestCases_quoteTheContract(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	var contract strings.Builder
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments); err != nil {
			t.Fatal(err)
		}
		contract.Write(src)
	}
	words := oneLine(contract.String())
	names := map[string]bool{}
	for _, c := range cases() {
		if names[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		names[c.name] = true
		for _, quote := range strings.Split(c.says, "\n") {
			if !strings.Contains(words, oneLine(quote)) {
				t.Errorf("%s: the contract does not say %q", c.name, quote)
			}
		}
	}
}

// oneLine drops comment marks and line breaks, and what depends on where they
// are.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "//", " ")), " ")
}
