package house_test

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/token"
	gotypes "go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
)

// logging calls f for each file of the packages that log.
func logging(t *testing.T, f func(name string, file *ast.File)) {
	t.Helper()
	for _, dir := range []string{".", "internal/engine", "internal/logs", "storage/sqlite", "webhook", "topic", "relay", "cmd/errand"} {
		for name, file := range parseDir(t, dir) {
			if !strings.HasSuffix(name, "_test.go") && name != "topic/sns.go" { // whose lines are those of SNS
				f(name, file)
			}
		}
	}
}

var logLevels = []string{"Debug", "Info", "Warn", "Error"}

// Lines of the log say whose they are, whichever part of errand writes them.
func TestHouse_logs(t *testing.T) {
	n := 0
	logging(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(node ast.Node) bool {
			call, _ := node.(*ast.CallExpr)
			if call == nil || len(call.Args) == 0 || !slices.Contains(logLevels, methodOf(call)) {
				return true
			}
			n++
			if message := literal(call.Args[0]); !strings.HasPrefix(message, `"errand: `) {
				t.Errorf(`%s: message %s does not begin with "errand: "`, name, message)
			}
			return true
		})
	})
	if n < 30 {
		t.Errorf("only %d calls of a logger found", n)
	}
}

// methodOf returns the name of the method that is called, or "".
func methodOf(call *ast.CallExpr) string {
	if method, ok := call.Fun.(*ast.SelectorExpr); ok {
		if of, ok := method.X.(*ast.Ident); ok && strings.HasSuffix(of.Name, "http") { // http.Error
			return ""
		}
		return method.Sel.Name
	}
	return ""
}

// The keys of the log are those of the table in docs/operations.md, no more and no
// less. What they name jobs by is in the table, the key of a job in the database is not.
func TestHouse_logKeys(t *testing.T) {
	used := map[string]string{}
	for _, o := range []storage.Outcome{storage.OutcomeCrashed, storage.OutcomeReturned, storage.OutcomeInterrupted, storage.OutcomeDead} {
		used[o.String()] = "outcomes of recovered jobs"
	}
	logging(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(node ast.Node) bool {
			for key := range attrsIn(node) {
				used[key] = name
			}
			return true
		})
	})
	if len(used) < 30 || used["error"] == "" || used["due"] == "" || used["reason"] == "" || used["stack"] == "" {
		t.Fatalf("only these keys were found: %v", used)
	}
	_, table, ok := strings.Cut(read(t, "docs/operations.md"), "\n### Keys\n")
	if !ok {
		t.Fatal("docs/operations.md has no table of keys")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(table, -1) {
		for _, key := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			if listed[key[1]] {
				t.Errorf("key %q is in the table twice", key[1])
			}
			listed[key[1]] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if !listed[key] {
			t.Errorf("key %q of %s is not in the table", key, used[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if used[key] == "" {
			t.Errorf("key %q of the table is not used", key)
		}
	}
}

// Durations in the log are numbers of seconds, under keys that end in _s: a handler that
// writes JSON takes a time.Duration for a number of nanoseconds.
func TestHouse_logDurations(t *testing.T) {
	typed := gotypes.Info{Types: map[ast.Expr]gotypes.TypeAndValue{}}
	of := &checker{t, map[string]*gotypes.Package{}, &typed}
	n := 0
	logging(t, func(name string, file *ast.File) {
		if _, err := of.Import(path.Join(module, path.Dir(name))); err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			for key, value := range attrsIn(node) {
				inSeconds := false
				if call, ok := value.(*ast.CallExpr); ok {
					inSeconds = methodOf(call) == "Seconds"
				}
				if inSeconds {
					n++
				}
				if is := typed.Types[value].Type; is != nil && is.String() == "time.Duration" || inSeconds != strings.HasSuffix(key, "_s") {
					t.Errorf("%s: attribute %q: a duration must be a number of seconds, as d.Seconds(), and only its key ends in _s", name, key)
				}
			}
			return true
		})
	})
	if n < 5 {
		t.Errorf("only %d durations found", n)
	}
}

// checker knows the types of expressions in packages of this module, as far as they come
// from these and from some small ones of the standard library.
type checker struct {
	t        *testing.T
	packages map[string]*gotypes.Package
	info     *gotypes.Info
}

// Import implements [gotypes.Importer]. Of other packages than these it knows nothing.
func (c *checker) Import(name string) (*gotypes.Package, error) {
	if p := c.packages[name]; p != nil {
		return p, nil
	}
	dir, own := strings.CutPrefix(name, module)
	var p *gotypes.Package
	var err error
	switch {
	case name == "time" || name == "sync/atomic" || name == "cmp":
		p, err = importer.ForCompiler(token.NewFileSet(), "source", nil).Import(name)
	case own:
		var files []*ast.File
		for name, file := range parseDir(c.t, cmp.Or(strings.TrimPrefix(dir, "/"), ".")) {
			if !strings.HasSuffix(name, "_test.go") {
				files = append(files, file)
			}
		}
		config := gotypes.Config{Importer: c, Error: func(error) {}}
		p, _ = config.Check(name, parsedFiles, files, c.info)
	default:
		p = gotypes.NewPackage(name, path.Base(name))
		p.MarkComplete()
	}
	c.packages[name] = p
	return p, err
}

// attrsIn returns the attributes of the log that a node names: in a call of a logger, or
// where they are put together.
func attrsIn(node ast.Node) map[string]ast.Expr {
	var attrs []ast.Expr
	switch node := node.(type) {
	case *ast.CallExpr:
		name := methodOf(node)
		if f, ok := node.Fun.(*ast.Ident); ok {
			name = f.Name
		}
		switch {
		case slices.Contains(logLevels, name):
			attrs = node.Args[min(1, len(node.Args)):]
		case name == "append" || name == "attrs":
			attrs = node.Args[min(1, len(node.Args)):]
		case name == "job" && len(node.Args) > 4: // of reports
			attrs = node.Args[4:]
		case name == "Int" && len(node.Args) == 2: // slog.Int
			attrs = node.Args
		}
	case *ast.CompositeLit:
		if a, ok := node.Type.(*ast.ArrayType); ok {
			if of, ok := a.Elt.(*ast.Ident); ok && of.Name == "any" {
				attrs = node.Elts
			}
		}
	}
	named := map[string]ast.Expr{}
	for i := 0; i+1 < len(attrs); i += 2 {
		key, err := strconv.Unquote(literal(attrs[i]))
		if err == nil && regexp.MustCompile(`^[A-Z_]*[a-z_][A-Za-z_]*$`).MatchString(key) {
			named[key] = attrs[i+1]
		}
	}
	return named
}

// literal returns the text of a literal, or that of the first in a sum.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.BinaryExpr:
		return literal(e.X)
	}
	return ""
}
