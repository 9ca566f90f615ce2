package house_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/house"
)

const guarantees = "docs/lists/guarantees.md"

var (
	tableRow = regexp.MustCompile(`(?m)^\|(.*)\|$`)
	quoted   = regexp.MustCompile("`([^`]+)`")
	marked   = regexp.MustCompile(`\[[a-z-]+\]`)
)

// tableRows returns the rows of the tables in a part of the page, each as its
// cells, without the heads.
func tableRows(text string) (rows [][]string) {
	for _, m := range tableRow.FindAllStringSubmatch(text, -1) {
		cells := strings.Split(m[1], "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "" && !strings.HasPrefix(cells[0], "--") {
			rows = append(rows, cells)
		}
	}
	return rows
}

// The list of tests is that of the code. Each guarantee is shown by tests, or the list says
// that it is not.
func TestGuarantees(t *testing.T) {
	want, err := house.Guarantees(".")
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, guarantees)
	if page != want {
		t.Errorf("%s is not what go generate ./internal/house writes", guarantees)
	}
	claims, tests, _ := strings.Cut(page, "\n## The tests\n")
	rows := tableRows(claims)
	if len(rows) < 16 {
		t.Errorf("%d guarantees: want those of Full and of Relaxed", len(rows))
	}
	for _, row := range rows {
		if len(row) != 7 {
			t.Errorf("%d cells, want 7: %q", len(row), row)
		}
		for i, cell := range row[1:] {
			if cell != "–" && cell != "not tested" && !marked.MatchString(cell) {
				t.Errorf("%s: cell %d names no test: %q", row[0], i+1, cell)
			}
		}
	}
	for _, row := range tableRows(tests) {
		wantSubtests(t, row)
	}
}

// wantSubtests looks for the names of the subtests in a row.
func wantSubtests(t *testing.T, row []string) {
	t.Helper()
	names := quoted.FindAllStringSubmatch(row[1], -1)
	literals := literalsOf(t, names[0][1])
	for _, m := range names[1:] {
		for _, part := range strings.Split(m[1], "/")[1:] {
			if !literals[part] {
				t.Errorf("%s: nothing in %s is called %s", row[0], names[0][1], m[1])
			}
		}
	}
}

// literalsIn are those of the packages that were looked at.
var literalsIn = map[string]map[string]bool{}

// literalsOf returns the strings in the tests of a package, as names of subtests, and of the
// suites that it runs.
func literalsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	if known := literalsIn[dir]; known != nil {
		return known
	}
	all := map[string]bool{}
	for name, file := range parseDir(t, dir) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		noteLiterals(all, file)
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if suite, ok := strings.CutPrefix(path, module+"/"); ok && err == nil && strings.HasSuffix(suite, "test") {
				for _, file := range parseDir(t, suite) {
					noteLiterals(all, file)
				}
			}
		}
	}
	literalsIn[dir] = all
	return all
}

func noteLiterals(all map[string]bool, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				all[strings.ReplaceAll(s, " ", "_")] = true // as go test writes it
			}
		}
		return true
	})
}
