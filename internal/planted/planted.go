// Package planted has faults in the source of a package, of which tests of the package have to
// find each.
package planted

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Fault is what a file says once, in a function, and what it would say there with the fault.
type Fault struct{ File, Was, Is string }

// Tests are the tests of a package in a build that has faults. A function that has some is a switch,
// and the environment says which of its bodies runs: so all faults take one build.
type Tests struct {
	binary string
	ids    map[Fault]int // from 1
}

const env = "ERRAND_PLANTED"

// Build builds the tests of the package of the working directory, with these faults.
func Build(t *testing.T, faults ...Fault) Tests {
	t.Helper()
	dir := t.TempDir()
	b := Tests{filepath.Join(dir, "tests"), map[Fault]int{}}
	files := map[string]*file{}
	for i, f := range faults {
		b.ids[f] = i + 1
		if files[f.File] == nil {
			files[f.File] = read(t, f.File)
		}
		files[f.File].plant(t, f, i+1)
	}
	overlay := map[string]string{}
	replace := func(name, text string) {
		path, err := filepath.Abs(name)
		if err == nil {
			overlay[path] = filepath.Join(dir, name)
			err = os.WriteFile(overlay[path], []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range files {
		replace(name, f.switches())
		replace("planted.go", fmt.Sprintf("package %s\nimport \"os\"\nvar plantedFault = os.Getenv(%q)\n", f.pkg, env))
	}
	doc, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), doc, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-gcflags=-e", "-overlay", filepath.Join(dir, "overlay.json"), "-o", b.binary)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("it does not build: %s", out)
	}
	return b
}

// Find runs the tests with a fault, and fails t if they all pass. It returns what they have printed.
func (b Tests) Find(t *testing.T, f Fault, flags ...string) string {
	t.Helper()
	out, err := b.run(t, b.ids[f], flags)
	switch {
	case err == nil:
		t.Error("no test finds it")
	case !strings.Contains(out, "--- FAIL"):
		t.Errorf("no test has failed: %v: %s", err, out)
	}
	return out
}

// Pass fails t if the tests do not pass without a fault.
func (b Tests) Pass(t *testing.T, flags ...string) {
	t.Helper()
	if out, err := b.run(t, 0, flags); err != nil {
		t.Fatalf("without a fault: %v: %s", err, out)
	}
}

func (b Tests) run(t *testing.T, id int, flags []string) (string, error) {
	cmd := exec.CommandContext(t.Context(), b.binary, append([]string{"-test.failfast", "-test.timeout=10m"}, flags...)...)
	cmd.Env = append(os.Environ(), env+"="+strconv.Itoa(id))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// file is a source, and the bodies of its functions with faults.
type file struct {
	name, text, pkg string
	parts           []part
	bad             map[int][]string // by part: the cases of its switch
}

// part is the text of a declaration, or of what is between two. Of a function, it is the body alone.
type part struct {
	text string
	line int
	body bool
}

func read(t *testing.T, name string) *file {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{name: name, text: string(text), bad: map[int][]string{}}
	f.pkg, f.parts = split(t, f.text)
	return f
}

// split gives the name of the package of a source, and its parts.
func split(t *testing.T, text string) (string, []part) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var parts []part
	at := 0
	to := func(pos token.Pos, body bool) {
		p := set.Position(pos)
		parts = append(parts, part{text[at:p.Offset], set.Position(tree.FileStart + token.Pos(at)).Line, body})
		at = p.Offset
	}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			to(fn.Body.Pos(), false)
			to(fn.Body.End(), true)
		}
	}
	to(tree.FileEnd, false)
	return tree.Name.Name, parts
}

// plant adds a fault.
func (f *file) plant(t *testing.T, fault Fault, id int) {
	t.Helper()
	if n := strings.Count(f.text, fault.Was); n != 1 {
		t.Fatalf("%s says %q %d times: must be once", f.name, fault.Was, n)
	}
	_, bad := split(t, strings.Replace(f.text, fault.Was, fault.Is, 1))
	if len(bad) != len(f.parts) {
		t.Fatalf("%s: %q as %q makes another number of functions", f.name, fault.Was, fault.Is)
	}
	for i, p := range f.parts {
		switch {
		case p.text == bad[i].text:
		case !p.body:
			t.Fatalf("%s: %q as %q is in no function", f.name, fault.Was, fault.Is)
		default:
			// So errors of the compiler name the fault.
			f.bad[i] = append(f.bad[i], fmt.Sprintf("case \"%d\":\n//line %q as %q:1\n%s\n", id, fault.Was, fault.Is, bad[i].text))
		}
	}
}

// switches is the source with its faults.
func (f *file) switches() string {
	var s strings.Builder
	for i, p := range f.parts {
		if cases := f.bad[i]; len(cases) > 0 {
			fmt.Fprintf(&s, "{\nswitch plantedFault {\n%sdefault:\n//line %s:%d\n%s\n}\n}\n//line %[2]s:%d\n",
				strings.Join(cases, ""), f.name, p.line, p.text, f.parts[i+1].line)
			continue
		}
		s.WriteString(p.text)
	}
	return s.String()
}
