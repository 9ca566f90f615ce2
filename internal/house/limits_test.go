package house_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/house"
)

// added is what later features have added to what a visitor meets: nothing else raises a limit.
var added = []struct {
	what                      string
	files, names, pages, rows int
}{
	{what: "Job.Finish, Job.CompleteTx, Job.Then", names: 3},
	{what: "Queue.StartBulk, Queue.Bulks, Bulk, BulkAction and its States, BulkInfo", names: 6, rows: 8},
	{what: "docs/finishing.md", pages: 1, rows: 9},
	{what: "Job.Checkpoint, CheckpointTx, Resume, Progress and SetResult, Progress, JobProgress, Result and Await", names: 9, rows: 7},
	{what: "docs/coming-from.md", pages: 1, rows: 71},
	{what: "workloads finish, finish-100 and progress", rows: 3},
	{what: "Queue.Totals, LaneTotals, Histogram, Bucket", names: 4},
	{what: "metrics: docs/metrics.md, errand metrics", pages: 1, rows: 18},
	{what: "Declaring and AfterEnqueue", names: 2},
	{what: "docs/tracing.md", pages: 1, rows: 13},
	{what: "Queue.Version", names: 1},
	{what: "docs/dashboard.md, errand dashboard, WorkerInfo.Serves, WorkerLimit.Includes, JobInfo.Coming", names: 3, pages: 1, rows: 15},
	{what: "Queue.ReleaseUniqueArgs, MergeError, the tag unique of args", names: 3, rows: 1},
	{what: "StopSignals, what a stop and the end of a process mean for jobs", names: 1, rows: 14},
	{what: "a file that was taken away, in operations.md, guarantees.md and troubleshooting.md", rows: 4},
	{what: "Queue.History, Period and LanePeriod", names: 3},
	{what: "docs/versions.md, docs/proofs.md and SECURITY.md", pages: 2, rows: 3},
	{what: "Queue.Audit, AuditEntry and WithAudit", names: 3},
	{what: "two SQLite libraries in a process, and another libc, in troubleshooting.md and operations.md", rows: 6},
	{what: "backlite, goqite, DBOS and Honker in docs/coming-from.md", rows: 48},
	{what: "platforms, times of the two commands and sizes of programs in README.md", rows: 14},
	{what: "what a commit costs flash", rows: 3},
	{what: "Origin", names: 1},
	{what: "Queue.EnqueueManyTx, HandleQueue", names: 2},
	{what: "errand relay, serve and devices in docs/command.md", rows: 2},
	{what: "docs/relay.md", pages: 1, rows: 52},
	{what: "devices in docs/metrics.md", rows: 2},
}

// What a visitor meets is limited, to what there was on 26 November 2026 and what is added; running
// text is limited whatever is added. The root was to have 175 names; 16 of the 185 came with
// features after that was said.
func TestHouse_visitors(t *testing.T) {
	f, err := house.Count(".")
	if err != nil {
		t.Fatal(err)
	}
	most := added[0]
	for _, a := range added[1:] {
		most.files, most.names, most.pages = most.files+a.files, most.names+a.names, most.pages+a.pages
		most.rows += a.rows
	}
	words, rows, pages := 0, 0, 0
	for _, p := range f.Pages {
		words, rows = words+p.Words, rows+p.Rows
		if p.Name != "README.md" {
			pages++
		} else if p.Words > 900 {
			t.Errorf("README.md has %d words of running text: want at most 900", p.Words)
		}
	}
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"Go files in the root", f.RootFiles, 60 + most.files},
		{"types, functions and methods of the root", f.Names["."], 185 + most.names},
		{"pages in docs", pages, 15 + most.pages},
		{"words of running text in README.md and docs", words, 23_100},
		{"rows of tables in README.md and docs", rows, 518 + most.rows},
	} {
		if c.got > c.most || c.got == 0 {
			t.Errorf("%d %s: want at most %d", c.got, c.what, c.most)
		}
	}
}

func TestPageOf(t *testing.T) {
	got := house.PageOf("# Two words\n\n```go\nnot these\n```\n| a | head |\n|---|---|\n| a | row |\n\nand three more\n")
	if want := (house.Page{Words: 6, Rows: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// doc.go names each method of a queue, where it says what to call.
func TestHouse_doc(t *testing.T) {
	_, list, ok := strings.Cut(read(t, "doc.go"), "// # What to call\n")
	list, _, _ = strings.Cut(list, "// # ")
	if !ok {
		t.Fatal("doc.go does not say what to call")
	}
	for m := range reflect.TypeFor[*errand.Queue]().Methods() {
		if !regexp.MustCompile(`\b` + m.Name + `\b`).MatchString(list) {
			t.Errorf("doc.go does not say what Queue.%s is for", m.Name)
		}
	}
}
