package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// ownPolicies makes jobs each of which has a policy of its own, and one that
// others have too.
func ownPolicies(from, n int) []storage.NewJob {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
		jobs[i].Policy = fmt.Appendf(nil, `{"numRetries":%d}`, from+i)
	}
	return jobs
}

// Policies go with the last job that has them, and few are kept in memory.
//
//errand:shows policies of jobs | | a policy is deleted with the last job that has it, and at most 1,000 are kept in memory
func TestPolicies_Forgotten(t *testing.T) {
	const n, step = 3000, 500
	ctx := context.Background()
	for name, keep := range map[string]time.Duration{"deleted at once": 0, "kept": time.Minute} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
			s := d.open()
			stays := ownPolicies(n, 2)
			stays[0].Kind, stays[1].Kind = "waits", "dies"
			if _, err := s.Enqueue(ctx, t0, stays); err != nil {
				t.Fatal(err)
			}
			die := storage.Finish{Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Policy: []byte(`{"numRetries":9999}`)}
			die.Lease = lease(t, s, 1, "dies")[0].Lease
			end := func(all ...storage.Finish) {
				t.Helper()
				if _, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Finish: all, Retention: storage.Retention{Default: keep}}); err != nil {
					t.Fatal(err)
				}
			}
			end(die)
			for from := 0; from < n; from += step {
				if _, err := s.Enqueue(ctx, t0, ownPolicies(from, step)); err != nil {
					t.Fatal(err)
				}
				var all []storage.Finish
				for _, l := range lease(t, s, step, "a") {
					all = append(all, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
				}
				end(all...)
			}
			for {
				_, next, err := s.PurgeFinished(ctx, t0.Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				if next.IsZero() {
					break
				}
			}
			if got := d.number(`SELECT COUNT(*) FROM errand_policy`); got > 2*step {
				t.Errorf("%d policies are stored, for one job that waits and one that is dead", got)
			}
			if got := s.PolicyDocs(); got > 1000 {
				t.Errorf("%d policies are in memory", got)
			}
			if got := lease(t, s, 1, "waits"); len(got) != 1 || string(got[0].Policy) != string(stays[0].Policy) {
				t.Errorf("leased %v: want the policy it was enqueued with", got)
			}
			d.Invariants(t)
		})
	}
}

// A policy that nobody has is not deleted by the transaction that enqueues a
// job with it, and none of its number comes again.
//
//errand:shows policies of jobs
func TestPolicies_FoundInATransaction(t *testing.T) {
	ctx := context.Background()
	app, s, d := appStore(t, nil)
	if _, err := s.Enqueue(ctx, t0, ownPolicies(0, 3)); err != nil {
		t.Fatal(err)
	}
	finish(t, s, lease(t, s, 3, "a")...)
	tx, err := app.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	again := ownPolicies(1, 1)
	again[0].Kind = "again"
	for _, jobs := range [][]storage.NewJob{again, ownPolicies(3, 1)} {
		if _, err := s.EnqueueTx(ctx, tx, t0, jobs); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := d.number(`SELECT COUNT(*) FROM errand_policy WHERE doc = '{"numRetries":0}'`); n != 0 {
		t.Error("nothing was swept")
	}
	if got := lease(t, s, 1, "again"); len(got) != 1 || string(got[0].Policy) != string(again[0].Policy) {
		t.Errorf("leased %v: want the policy it was enqueued with", got)
	}
	d.Invariants(t)
}

// Large headers without args are kept, beside the row, through death and redrive.
func TestJob_HeadersAlone(t *testing.T) {
	ctx := context.Background()
	d := newDB(t, nil)
	s := d.open()
	job := storage.NewJob{Queue: "default", Kind: "a", Headers: bytes.Repeat([]byte("h"), 3000)}
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{job}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := lease(t, s, 1, "a")
		if len(got) != 1 || !bytes.Equal(got[0].Headers, job.Headers) || len(got[0].Args) != 0 {
			t.Fatalf("leased %v, want the headers alone", got)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: got[0].Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}}}
		if _, err := s.Exchange(ctx, t0, x); err != nil {
			t.Fatal(err)
		}
		if step, err := s.Redrive(ctx, t0, storage.Selection{}, ""); err != nil || step.N != 1 {
			t.Fatalf("redriven %d, %v", step.N, err)
		}
	}
	d.Invariants(t)
}

// A row is written with all that the job has.
func TestJob_InsertAll(t *testing.T) {
	for _, n := range [][4]int64{{2: 3}, {1, 2, 3, 4}} {
		var job sqlite.JobRow
		job.Retry, job.Crashes, job.Snoozes, job.Timeout = n[0], n[1], n[2], n[3]
		got, err := newDB(t, nil).open().InsertAndRead(job)
		if err != nil || got != [3]int64{job.Retry, job.Crashes, job.Snoozes} {
			t.Errorf("read %v, %v: want that of %+v", got, err, job)
		}
	}
}

// Each statement that changes the table of live jobs is one of jobtable.go, and apply alone
// runs it, with all that belongs to the change. Those of backup.go change a copy.
func TestJobs_OneDoor(t *testing.T) {
	const most = 0 // of others
	change := regexp.MustCompile(`(?i)\b(UPDATE(\s+OR\s+\w+)?|(INSERT(\s+OR\s+\w+)?|REPLACE)\s+INTO|DELETE\s+FROM)\s+(main\.)?errand_job\b`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	sources := map[string]*ast.File{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "backup.go" {
			continue
		}
		if sources[name], err = parser.ParseFile(set, name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	others, texts := 0, map[string]bool{}
	for name, file := range sources {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && name == "jobtable.go" && changes(spec, change) {
				texts[spec.Names[0].Name] = true
			}
			if lit, ok := n.(*ast.BasicLit); ok && name != "jobtable.go" && change.MatchString(lit.Value) {
				others++
				t.Logf("%s: a statement that changes jobs", set.Position(lit.Pos()))
			}
			return true
		})
	}
	for name, file := range sources {
		if name == "jobtable.go" || name == "delta.go" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || name == "statements.go" && strings.HasPrefix(id.Name, "sqlDrop") { // it is known by its text, see changes
				return true
			}
			if texts[id.Name] {
				others++
				t.Logf("%s: %s is used", set.Position(id.Pos()), id.Name)
			}
			return true
		})
	}
	if others != most || len(texts) < 20 {
		t.Errorf("%d statements change jobs beside apply, and %d within: want %d, and at least 20", others, len(texts), most)
	}
}

// changes reports whether a name stands for a text that changes jobs.
func changes(spec *ast.ValueSpec, change *regexp.Regexp) (found bool) {
	ast.Inspect(spec, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			found = found || change.MatchString(n.Value)
		case *ast.Ident:
			found = found || n.Name == "insertJob"
		}
		return true
	})
	return found
}

// What becomes of jobs is decided before it is written. A statement that changes the table of live jobs
// sets columns to parameters, but for these.
func TestJobs_SetParameters(t *testing.T) {
	reckons := []string{
		"sqlLease", "sqlLeaseBlocked", "sqlLeaseRun", "sqlExtendAny", "sqlRunNow", "sqlReplace", "sqlChangeJob", "sqlEditJob",
		"sqlHandBack", "sqlMarkKept", "sqlShift",
	}
	file, err := parser.ParseFile(token.NewFileSet(), "jobtable.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)^.UPDATE (?:OR \w+ )?main\.errand_job (?:NOT INDEXED )?SET (.*?)\s(?:WHERE|FROM)\b`)
	plain := regexp.MustCompile(`^\w+ = (\?\d*|\d+)(,\s\w+ = (\?\d*|\d+))*$`)
	var found []string
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		ast.Inspect(spec, func(node ast.Node) bool {
			lit, ok := node.(*ast.BasicLit)
			if !ok {
				return true
			}
			if set := list.FindStringSubmatch(lit.Value); set != nil {
				if n++; !plain.MatchString(set[1]) {
					found = append(found, spec.Names[0].Name)
				}
			}
			return true
		})
		return false
	})
	slices.Sort(reckons)
	if slices.Sort(found); !slices.Equal(found, reckons) || n < 18 {
		t.Errorf("of %d statements these reckon: %v, want %v", n, found, reckons)
	}
}
