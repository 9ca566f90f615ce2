package house

import (
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:generate go run ./lists ../..

// claims are the guarantees under each failure, with the marks of the tests that show them.
//
//go:embed claims.md
var claims string

// shown is what tests of a package show, by a line of their comments:
//
//	//errand:shows WHAT | SUBTESTS | TEXT
//
// WHAT is a mark of a claim, in square brackets, or what the tests are about. SUBTESTS
// select some, separated by spaces. TEXT says what the tests do, or what happens; at least
// one of those of a package that show the same has it.
type shown struct {
	what, folder string
	tests        []string
	text         string
	root         bool // some need root
}

const directive = "//errand:shows "

// mark is that of a claim, and no link.
var mark = regexp.MustCompile(`\[([a-z-]+)\](?:[^(]|$)`)

// Guarantees returns the page that lists the tests behind the guarantees.
func Guarantees(dir string) (string, error) {
	all, err := readShown(dir)
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, m := range mark.FindAllStringSubmatch(claims, -1) {
		used["["+m[1]+"]"] = true
	}
	var marked, edges strings.Builder
	for _, s := range all {
		to, names := &edges, "`"+s.folder+"`"
		if strings.HasPrefix(s.what, "[") {
			if to = &marked; !used[s.what] {
				return "", fmt.Errorf("%s shows %s, which no claim names", s.folder, s.what)
			}
			delete(used, s.what)
		}
		if s.text == "" {
			return "", fmt.Errorf("no test of %s says what it shows for %q", s.folder, s.what)
		}
		for _, name := range s.tests {
			names += " `" + name + "`"
		}
		text := s.text
		if s.root {
			text += " (root)"
		}
		fmt.Fprintf(to, "| %s | %s | %s |\n", s.what, names, text)
	}
	for m := range used {
		return "", fmt.Errorf("no test shows %s", m)
	}
	return claims + `
## The tests

[Proofs](../proofs.md) says how to run them. Tests marked with (root) need root on Linux.

| | tests | what they do |
|---|---|---|
` + marked.String() + `
## At the edges

This is about other names of the file, other readers, programs and users, and the ways in which processes are stopped. Each row is
a fault that was found and repaired, with the test that would fail if it came back.

| | tests | what happens now |
|---|---|---|
` + edges.String(), nil
}

// readShown returns what the tests of a checkout show, sorted.
func readShown(dir string) (all []*shown, err error) {
	err = filepath.WalkDir(dir, func(folder string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == ".git" || name == "bench" || name == "testdata" {
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			return err
		}
		parsed, err := ParseDir(token.NewFileSet(), folder)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, folder)
		if err != nil {
			return err
		}
		// A path to give to go test.
		name = "./" + path.Clean(filepath.ToSlash(name))
		for _, file := range files {
			for _, decl := range parsed[file].Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Doc != nil && isTest(f.Name.Name) {
					all = note(all, name, f)
				}
			}
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b *shown) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.folder, b.folder))
	})
	return all, err
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")
}

// note adds what a test shows.
func note(all []*shown, folder string, f *ast.FuncDecl) []*shown {
	for _, line := range f.Doc.List {
		rest, ok := strings.CutPrefix(line.Text, directive)
		if !ok {
			continue
		}
		part := append(strings.SplitN(rest, "|", 3), "", "")
		what := strings.TrimSpace(part[0])
		i := slices.IndexFunc(all, func(s *shown) bool { return s.what == what && s.folder == folder })
		if i < 0 {
			i, all = len(all), append(all, &shown{what: what, folder: folder})
		}
		s := all[i]
		if text := strings.TrimSpace(part[2]); s.text != "" && text != "" {
			s.text += "; " + text
		} else {
			s.text += text
		}
		s.root = s.root || calls(f, "needsRoot")
		subs := strings.Fields(part[1])
		if len(subs) == 0 {
			s.tests = append(s.tests, f.Name.Name)
		}
		for _, sub := range subs {
			s.tests = append(s.tests, f.Name.Name+"/"+sub)
		}
	}
	return all
}

// calls reports whether a function calls another of its package.
func calls(f *ast.FuncDecl, name string) (found bool) {
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
