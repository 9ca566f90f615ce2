// Package house counts what a visitor of the repository meets: files, exported names, pages
// and their words. Its tests hold the limits, and compare the pages with the code.
package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Figures are those of a checkout.
type Figures struct {
	RootFiles int            // Go files in the root, with tests
	Names     map[string]int // exported types, functions and methods, by the folder of the package; "." is the root
	Pages     []Page         // README.md, then docs/*.md
}

// Page is a page of documentation.
type Page struct {
	Name  string
	Words int // running text: neither code nor tables
	Rows  int // of tables, with their heads
}

// Count reads a checkout.
func Count(dir string) (f Figures, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return f, err
	}
	f.RootFiles = len(files)
	if f.Names, err = names(dir); err != nil {
		return f, err
	}
	docs, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil {
		return f, err
	}
	for _, file := range append([]string{filepath.Join(dir, "README.md")}, docs...) {
		text, err := os.ReadFile(file) //nolint:gosec // a page of the checkout
		if err != nil {
			return f, err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return f, err
		}
		p := PageOf(string(text))
		p.Name = filepath.ToSlash(name)
		f.Pages = append(f.Pages, p)
	}
	return f, nil
}

var ruler = regexp.MustCompile(`^\|[\s:|-]*-[\s:|-]*\|?$`)

// PageOf counts the words and rows of a page.
func PageOf(text string) (p Page) {
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, ruler.MatchString(line):
		case strings.HasPrefix(line, "|"):
			p.Rows++
		default:
			p.Words += len(strings.Fields(line))
		}
	}
	return p
}

// ParseDir parses the files of a package by their names, for whichever system they are.
func ParseDir(positions *token.FileSet, dir string) (map[string]*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if files[name], err = parser.ParseFile(positions, name, nil, parser.SkipObjectResolution|parser.ParseComments); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// names counts the exported types, functions and methods of the public packages.
func names(dir string) (map[string]int, error) {
	all := map[string]int{}
	err := public(dir, func(folder string, file *ast.File) { all[folder] += exported(file) })
	return all, err
}

// public calls fn for each file of the packages that others can import, without those for tests
// of stores.
func public(dir string, fn func(folder string, file *ast.File)) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skip := []string{".git", "internal", "testdata", "examples", "torture", "bench", "cmd", "compat", "storagetest"}; slices.Contains(skip, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		fn(path.Clean(filepath.ToSlash(folder)), parsed)
		return nil
	})
}

func exported(file *ast.File) (n int) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(Receiver(d.Recv.List[0].Type))) {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && t.Name.IsExported() {
					n++
				}
			}
		}
	}
	return n
}

// Receiver returns the name of the type of a method.
func Receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return Receiver(e.X)
	case *ast.IndexExpr:
		return Receiver(e.X)
	case *ast.IndexListExpr:
		return Receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
