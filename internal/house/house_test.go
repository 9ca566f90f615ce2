package house_test

import (
	"cmp"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/errandq/errand"

// pkg is a package as go list knows it.
type pkg struct {
	path     string
	standard bool
	module   string
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	args = append([]string{"list", "-f", "{{.ImportPath}} {{.Standard}} {{with .Module}}{{.Path}}{{end}}"}, args...)
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	var all []pkg
	for line := range strings.Lines(string(out)) {
		f := append(strings.Fields(line), "")
		all = append(all, pkg{f[0], f[1] == "true", f[2]})
	}
	return all
}

// Who imports errand gets these modules and no others.
func TestHouse_dependencies(t *testing.T) {
	allowed := []string{
		module,
		"modernc.org/sqlite", "github.com/jmoiron/sqlx", "github.com/robfig/cron/v3", "github.com/google/uuid",
		"golang.org/x/time", "github.com/fsnotify/fsnotify",
		// what those need
		"modernc.org/libc", "modernc.org/mathutil", "modernc.org/memory", "github.com/dustin/go-humanize",
		"github.com/mattn/go-isatty", "github.com/ncruces/go-strftime", "github.com/remyoudompheng/bigfft", "golang.org/x/sys",
	}
	own := []string{"", "/internal/argtag", "/internal/bulk", "/internal/clock", "/internal/door", "/internal/engine", "/internal/logs", "/internal/schedule", "/internal/seconds", "/migrations", "/policy",
		"/storage", "/storage/internal/rules", "/storage/internal/selector", "/storage/sqlite", "/storage/sqlite/internal/crowd", "/storage/sqlite/internal/host", "/storage/sqlite/internal/packed"}
	deps := goList(t, "-deps", ".")
	if len(deps) < 50 {
		t.Fatalf("go list knows only %d packages", len(deps))
	}
	for _, p := range deps {
		switch {
		case p.standard:
			// The last two make a program that does not need them 2 MB larger.
			if slices.Contains([]string{"testing", "crypto/tls", "net/http"}, p.path) {
				t.Errorf("the root needs package %s", p.path)
			}
		case !slices.Contains(allowed, p.module):
			t.Errorf("%s of %s is not to be needed", p.path, p.module)
		case p.module == module && !slices.Contains(own, strings.TrimPrefix(p.path, module)):
			t.Errorf("%s is not below the root", p.path)
		}
	}
}

// Each package may import the standard library and what is listed.
func TestHouse_directions(t *testing.T) {
	for dir, allowed := range map[string][]string{
		"policy":                         {"internal/seconds"},
		"policy/policyhttp":              {"policy"},
		"storage":                        {"internal/seconds", "github.com/google/uuid"},
		"topic/filter":                   {},
		"topic":                          {module, "internal/door", "internal/remember", "internal/seconds", "policy", "storage", "webhook", "topic/filter"},
		"migrations":                     {},
		"internal/engine":                {"internal/clock", "internal/logs", "internal/schedule", "policy", "storage", "golang.org/x/time/rate"},
		"internal/argtag":                {},
		"internal/bulk":                  {"internal/engine", "storage"},
		"internal/clock":                 {},
		"internal/door":                  {"internal/engine", "storage"},
		"internal/logs":                  {},
		"internal/remember":              {},
		"internal/seconds":               {},
		"internal/schedule":              {"github.com/robfig/cron/v3"},
		"storage/postgres":               {"storage", "storage/internal/rules", "storage/internal/selector", "migrations"},
		"internal/pgtest":                {"github.com/jackc/pgx/v5"},
		"storage/sqlite":                 {"internal/logs", "storage", "storage/internal/rules", "storage/internal/selector", "migrations", "storage/sqlite/internal/crowd", "storage/sqlite/internal/host", "storage/sqlite/internal/packed"},
		"storage/sqlite/internal/packed": {"storage"},
		"storage/sqlite/internal/crowd":  {},
		// pure
		"storage/internal/rules":    {"storage"},
		"storage/internal/selector": {"storage", "storage/internal/rules"},
		"relay":                     {module, "gate", "internal/door", "internal/logs", "internal/seconds", "relay/internal/ratchet", "relay/internal/wire", "storage"},
		"relay/internal/ratchet":    {},
		"relay/internal/wire":       {"internal/seconds", "relay/internal/ratchet"},
		// so that it is about operating systems alone
		"storage/sqlite/internal/host": {},
		"errandtest":                   {module, "internal/door", "policy", "storage", "storage/sqlite"},
		"metrics":                      {module, "relay"},
		"dashboard":                    {module, "internal/argfilter", "internal/indent", "internal/perminute", "internal/plot", "internal/seconds", "policy", "relay", "topic", "webhook"},
		"internal/perminute":           {},
		"internal/badnet":              {},
		"internal/planted":             {},
		"internal/argfilter":           {module},
		"internal/indent":              {},
		"internal/plot":                {"policy"},
		"gate":                         {module, "internal/clock", "internal/schedule", "golang.org/x/sys/unix", "golang.org/x/sys/windows"},
		"webhook":                      {module, "gate", "internal/door", "internal/remember", "internal/seconds", "policy", "policy/policyhttp", "storage"},
		// other modules of stores are a matter of the test above
		"storage/storagetest": {"storage"},
		".":                   {"internal/argtag", "internal/bulk", "internal/clock", "internal/door", "internal/engine", "internal/logs", "internal/schedule", "internal/seconds", "policy", "storage", "storage/sqlite"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, "./"+dir).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", dir, err)
		}
		for path := range strings.FieldsSeq(string(out)) {
			inside, own := strings.CutPrefix(path, module+"/")
			foreign := strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !own
			if own && !slices.Contains(allowed, inside) ||
				foreign && !slices.Contains(allowed, path) && !strings.HasPrefix(dir, "storage/") {
				t.Errorf("%s imports %s", dir, path)
			}
		}
	}
	// Rules get by without anything that is another each time, or that reads or writes.
	for _, p := range goList(t, "-f", `{{range .Imports}}{{.}} true -{{"\n"}}{{end}}`, "./storage/internal/rules") {
		if !slices.Contains([]string{"bytes", "cmp", "errors", "math", "slices", "strings", "time", module + "/storage"}, p.path) {
			t.Errorf("storage/internal/rules imports %s", p.path)
		}
	}
	// Leaves are imported by nobody.
	for _, p := range goList(t, "-deps", "./policy", "./storage") {
		if !p.standard && p.path != module+"/policy" && p.path != module+"/storage" && p.path != module+"/internal/seconds" && p.path != "github.com/google/uuid" {
			t.Errorf("policy and storage need %s", p.path)
		}
	}
}

func TestHouse_size(t *testing.T) {
	for dir, most := range map[string]int{".": 36, "storage/sqlite": 63} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
		if len(files) > most || len(files) == 0 {
			t.Errorf("%s has %d files: want at most %d: %v", dir, len(files), most, files)
		}
	}
	if n := strings.Count(read(t, "doc.go"), "\n"); n > 150 {
		t.Errorf("doc.go has %d lines: want at most 150", n)
	}
}

// A struct of many fields is several things that lack a name. Options and rows
// are lists by nature.
func TestHouse_structs(t *testing.T) {
	exempt := []string{
		"internal/engine.Config",
		"..JobInfo", "storage.Record", "storage/sqlite.recordRow",
	}
	seen := map[string]bool{}
	for _, p := range goList(t, "./...") {
		dir := "." + strings.TrimPrefix(p.path, module)
		dir = cmp.Or(strings.TrimPrefix(dir, "./"), ".")
		for name, file := range parseDir(t, dir) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			ast.Inspect(file, func(node ast.Node) bool {
				spec, _ := node.(*ast.TypeSpec)
				if spec == nil {
					return true
				}
				if s, ok := spec.Type.(*ast.StructType); ok {
					id, most := dir+"."+spec.Name.Name, 20
					seen[id] = true
					if id == "internal/engine.loop" {
						most = 16
					}
					if n := s.Fields.NumFields(); n > most && !slices.Contains(exempt, id) {
						t.Errorf("%s: %s has %d fields: want at most %d", name, id, n, most)
					}
				}
				return true
			})
		}
	}
	for _, id := range append(exempt, "internal/engine.loop") {
		if !seen[id] {
			t.Errorf("there is no struct %s", id)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
