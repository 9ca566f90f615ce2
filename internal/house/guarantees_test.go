package house_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const guarantees = "docs/guarantees.md"

var (
	tableRow = regexp.MustCompile(`(?m)^\|(.*)\|$`)
	mark     = regexp.MustCompile(`\[([a-z-]+)\](?:[^(]|$)`) // and no link
	testName = regexp.MustCompile(`^(Test|Fuzz)`)
	quoted   = regexp.MustCompile("`([^`]+)`")
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

// Each guarantee of the page is shown by tests that exist, or the page says
// that it is not.
func TestGuarantees(t *testing.T) {
	claims, list, ok := strings.Cut(read(t, guarantees), "\n## The tests\n")
	list, edges, both := strings.Cut(list, "\n## At the edges\n")
	if !ok || !both {
		t.Fatal("the page has no list of tests, or none of those at the edges")
	}
	for _, row := range tableRows(edges) {
		if len(row) != 3 {
			t.Errorf("%d cells, want 3: what it is about, the tests, what happens: %q", len(row), row)
			continue
		}
		wantTests(t, row)
	}
	listed := map[string]bool{}
	for _, row := range tableRows(list) {
		name := mark.FindStringSubmatch(row[0])
		if len(row) != 3 || name == nil || listed[name[1]] {
			t.Errorf("not a mark that is new, the tests, and what they do: %q", row)
			continue
		}
		listed[name[1]] = true
		wantTests(t, row)
	}
	used := map[string]bool{}
	for _, m := range mark.FindAllStringSubmatch(claims, -1) {
		if used[m[1]] = true; !listed[m[1]] {
			t.Errorf("[%s] is not in the list of tests", m[1])
		}
	}
	for name := range listed {
		if !used[name] {
			t.Errorf("[%s] shows nothing", name)
		}
	}
	rows := tableRows(claims)
	if len(rows) < 16 {
		t.Errorf("%d guarantees: want those of Full and of Relaxed", len(rows))
	}
	for _, row := range rows {
		if len(row) != 7 {
			t.Errorf("%d cells, want 7: %q", len(row), row)
		}
		for i, cell := range row[1:] {
			if cell != "–" && cell != "not tested" && !mark.MatchString(cell) {
				t.Errorf("%s: cell %d names no test: %q", row[0], i+1, cell)
			}
		}
	}
}

// wantTests looks for the tests that a row names, and whether they need root.
func wantTests(t *testing.T, row []string) {
	t.Helper()
	names := quoted.FindAllStringSubmatch(row[1], -1)
	if len(names) < 2 {
		t.Errorf("%s names no package and test: %q", row[0], row[1])
		return
	}
	p := parseTests(t, names[0][1])
	for _, m := range names[1:] {
		parts := strings.Split(m[1], "/")
		f := p.tests[parts[0]]
		if f == nil {
			t.Errorf("%s: there is no test %s in %s", row[0], parts[0], names[0][1])
			continue
		}
		for _, part := range parts[1:] {
			if !p.literals[part] {
				t.Errorf("%s: nothing in %s is called %s", row[0], names[0][1], m[1])
			}
		}
		if got := strings.HasSuffix(row[2], "(root)"); got != callsFunc(f, "needsRoot") {
			t.Errorf("%s: %s needs root: the page says %t", row[0], parts[0], got)
		}
	}
}

// tested is what there is in a package.
type tested struct {
	tests    map[string]*ast.FuncDecl
	literals map[string]bool // as names of sub-tests, in suites that it runs too
}

// testsOf are those of the packages that were looked at.
var testsOf = map[string]tested{}

func parseTests(t *testing.T, dir string) tested {
	t.Helper()
	if p, ok := testsOf[dir]; ok {
		return p
	}
	p := tested{map[string]*ast.FuncDecl{}, map[string]bool{}}
	suites := []string{}
	for name, file := range parseDir(t, dir) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		p.note(file)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && testName.MatchString(f.Name.Name) && len(f.Type.Params.List) == 1 {
				p.tests[f.Name.Name] = f
			}
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if suite, ok := strings.CutPrefix(path, module+"/"); ok && err == nil && strings.HasSuffix(suite, "test") && !slices.Contains(suites, suite) {
				suites = append(suites, suite)
			}
		}
	}
	for _, suite := range suites {
		for _, file := range parseDir(t, suite) {
			p.note(file)
		}
	}
	testsOf[dir] = p
	return p
}

// note takes the literals of a file.
func (p *tested) note(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				p.literals[strings.ReplaceAll(s, " ", "_")] = true // as go test writes it
			}
		}
		return true
	})
}

// callsFunc reports whether a function calls another of its package.
func callsFunc(f *ast.FuncDecl, name string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if id, ok := c.Fun.(*ast.Ident); ok && id.Name == name {
				found = true
			}
		}
		return true
	})
	return found
}
