//go:build planted

package sqlite_test

import (
	"regexp"
	"testing"

	plant "github.com/errandq/errand/internal/planted"
)

// TestCosts fails with each of these slow-downs, and says which count has risen. For each of them
// this package is built: run it with go test -tags planted.
func TestCosts_Planted(t *testing.T) {
	for name, f := range map[string]struct{ file, was, fault, says string }{
		"a statement more for each job": {
			"exchange.go", `	r.Size = int64(l.Weight())
`, `	r.Size = int64(l.Weight())
	if err := t.row(sqlIsCancelling, []any{r.ID, 0}, new(bool)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
`, `drain costs more: \d+ statements`,
		},
		"a page more for each commit": {
			"writer.go", `	if err == nil {
		err = t.flush()
`, `	if err == nil {
		_, err = w.stmts.exec("INSERT INTO main.errand_epoch (epoch, base) VALUES (1, 0) ON CONFLICT DO UPDATE SET base = base + 1")
	}
	if err == nil {
		err = t.flush()
`, `enqueue-1 costs more: \d+ pages`,
		},
		"an allocation for each job": {
			"exchange.go", `= r.Headers, r.Args, r.Options`, `= r.Headers, append([]byte{}, r.Args...), r.Options`, `drain costs more: \d+ allocations`,
		},
		"a RETURNING": {
			"jobtable.go", ` AND state = 3 AND cancelling = 0` + "`\n\t// For a job", ` AND state = 3 AND cancelling = 0 RETURNING lane` + "`\n\t// For a job", `failing costs more: \d+ steps`,
		},
		"no run forms": {
			"jobtable.go", `if d.was.State != ready || d.out`, `if true || d.was.State != ready || d.out`, `drain costs more: \d+ statements`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if out := plant.Find(t, f.file, f.was, f.fault, "-run", "^TestCosts$"); !regexp.MustCompile(f.says).MatchString(out) {
				t.Errorf("want %s in\n%s", f.says, out)
			}
		})
	}
}
