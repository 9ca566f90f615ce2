package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/errandq/errand/internal/house"
)

// Paths in these tests are those of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// parsed are the packages that were parsed, which takes long.
var (
	parsed      = map[string]map[string]*ast.File{}
	parsedFiles = token.NewFileSet()
)

func parseDir(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	if files := parsed[dir]; files != nil {
		return files
	}
	files, err := house.ParseDir(parsedFiles, dir)
	if err != nil {
		t.Fatal(err)
	}
	parsed[dir] = files
	return files
}
