package sqlite_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is beside a database is opened in one place, which follows no links.
// Everything else that opens a file opens another one.
func TestBeside_OpenedInOnePlace(t *testing.T) {
	opening := []string{"Open", "OpenFile", "OpenInRoot", "OpenRoot", "Create", "ReadFile", "WriteFile", "Truncate", "Chmod", "Chown"}
	allowed := []string{
		"internal/host/beside.go: OpenBeside", "internal/host/beside.go: OpenExisting",
		"file.go: checkFile",                     // makes the database
		"doctor.go: header", "doctor.go: copyTo", // read the database
		"doctor.go: copyFile",                 // makes a copy in a folder of its own
		"backup.go: publish",                  // syncs the copy it has made, and its folder
		"internal/host/boot_linux.go: BootID", // of the kernel, as the next two
		"internal/host/names_linux.go: mountedAlone",
		"internal/host/filesystem_linux.go: StatFS",
	}
	files, err := filepath.Glob("*.go")
	below, e := filepath.Glob("internal/host/*.go")
	if err != nil || e != nil || len(below) == 0 {
		t.Fatal(err, e, below)
	}
	for _, name := range append(files, below...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			where := filepath.ToSlash(name) + ": "
			if f, ok := decl.(*ast.FuncDecl); ok {
				where += f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if fmt.Sprint(s.X) == "os" && slices.Contains(opening, s.Sel.Name) && !slices.Contains(allowed, where) {
					t.Errorf("%s uses os.%s: must use host.OpenBeside, OpenExisting or EmptyBeside", where, s.Sel.Name)
				}
				return true
			})
		}
	}
}
