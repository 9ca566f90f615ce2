package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Stores know a decision by its rows alone, so that a new rule adds no branch to a store: what is
// between a decision and its rows is a matter of this package.
func TestStores_KnowRows(t *testing.T) {
	between := []string{"Moves", "LetIn", "Member", "ErrNotLoaded"}
	set := token.NewFileSet()
	parse := func(dir string, each func(f *ast.File)) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has the files %v (%v)", dir, files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			each(f)
		}
	}
	declared := map[string]bool{}
	parse(".", func(f *ast.File) {
		for _, d := range f.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					declared[n.Name.Name] = true
				case *ast.TypeSpec:
					declared[n.Name.Name] = true
				case *ast.ValueSpec:
					declared[n.Names[0].Name] = true
				}
				return true
			})
		}
	})
	for _, name := range between {
		if !declared[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for _, dir := range []string{"../../sqlite", "../../postgres"} {
		parse(dir, func(f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "rules" && slices.Contains(between, s.Sel.Name) {
					t.Errorf("%s: a store uses rules.%s", set.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		})
	}
}
