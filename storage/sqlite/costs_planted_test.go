//go:build planted

package sqlite_test

import (
	"regexp"
	"testing"

	plant "github.com/errandq/errand/internal/planted"
)

// TestCosts fails with each of these slow-downs, and says which count has risen; without, it passes.
// Run it with go test -tags planted.
func TestCosts_Planted(t *testing.T) {
	faults := map[string]struct{ file, was, fault, workload, says string }{
		"a statement more for each job": {
			"exchange.go", `	r.Size = int64(l.Weight())
`, `	r.Size = int64(l.Weight())
	if err := t.row(sqlIsCancelling, []any{r.ID, 0}, new(bool)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
`, "drain", `\d+ statements`,
		},
		"a page more for each commit": {
			"writer.go", `	if err == nil {
		err = t.flush()
`, `	if err == nil {
		_, err = w.stmts.exec("INSERT INTO main.errand_epoch (epoch, base) VALUES (1, 0) ON CONFLICT DO UPDATE SET base = base + 1")
	}
	if err == nil {
		err = t.flush()
`, "enqueue-1", `\d+ pages`,
		},
		"an allocation for each job": {
			"exchange.go", `= r.Headers, r.Args, r.Options`, `= r.Headers, append([]byte{}, r.Args...), r.Options`, "drain", `\d+ allocations`,
		},
		"a RETURNING": {
			"jobtable.go", `execCount(sqlReschedule,`, `execCount(sqlReschedule+" RETURNING lane",`, "failing", `\d+ steps`,
		},
		"no run forms": {
			"jobtable.go", `if d.was.State != ready || d.out`, `if true || d.was.State != ready || d.out`, "drain", `\d+ statements`,
		},
	}
	var all []plant.Fault
	for _, f := range faults {
		all = append(all, plant.Fault{File: f.file, Was: f.was, Is: f.fault})
	}
	tests := plant.Build(t, all...)
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			run := "-test.run=^TestCosts$/^" + f.workload + "$"
			tests.Pass(t, run)
			out := tests.Find(t, plant.Fault{File: f.file, Was: f.was, Is: f.fault}, run)
			if says := f.workload + " costs more: " + f.says; !regexp.MustCompile(says).MatchString(out) {
				t.Errorf("want %s in\n%s", says, out)
			}
		})
	}
}
