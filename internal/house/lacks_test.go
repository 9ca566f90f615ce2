package house_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/errandq/errand/internal/house"
)

// lacks has the words by which pages say that errand does not have something, and what would
// belie them: the path of a package, an exported name such as Queue.Cancel, or a verb such as
// "errand doctor". Nothing belies words that are about a case, or about another system.
var lacks = []struct{ words, belied string }{
	{"no other, the next start does", ""},
	{"no retries", ""},
	{"no time limit until you set one", ""},
	{"no call that runs a failed task again", ""},
	{"cannot be stopped", ""},
	{"no bundle of workers", `^(Workers|Mux|Bundle)`},
	{"no choice of states or of a queue", `^Unique\.(By)?(State|Queue)`},
	{"no named steps", `^Job\.\w*Step`},
	{"Steps of workflows", `^Job\.\w*Step|Workflow`},
	{"no workflows", `Workflow`},
	{"no flows", `Flow`},
	{"Flows, graphs of jobs, and a callback when many jobs have ended", `Flow|Graph|\.Callback|^Batch(es|Info)?$`},
	{"none; `job.Then` for what follows one job", `\.Callback|^Batch(es|Info)?$`},
	{"no weights", `Weight`},
	{"Weights of queues, and a limit on how many jobs of a queue run in all processes", `Weight|^(Settings|QueueOptions)\.(Global|Total)`},
	{"no limit for all processes", `^(Settings|QueueOptions)\.(Global|Total)`},
	{"no mode for tests", `^(Inline|Fake)|TestMode`},
	{"A mode for tests", `^(Inline|Fake)|TestMode`},
	{"none; `errand work` for programs", `^Queue\.(Lease|Claim|Receive|Take)`},
	{"no call that takes a job out by hand", `^Queue\.(Lease|Claim|Receive|Take)`},
	{"cannot wait for a message", `^Queue\.Signal|^Job\.(Recv|Receive|Wait)`},
	{"; none | A job cannot wait", `^Queue\.Signal|^Job\.(Recv|Receive|Wait)`},
	{"no streams", `^Streams?$|^(Queue|Topics)\.\w*Stream`},
	{"; none | There are no streams", `^Streams?$|^(Queue|Topics)\.\w*Stream`},
	{"Streams that each consumer reads", `^Streams?$|^(Queue|Topics)\.\w*Stream`},
	{"One queue for [several hosts]", `^(Cluster|Join)|^errand (cluster|join)`},
	{"Drivers of SQLite other than modernc.org/sqlite", `^storage/(mattn|ncruces|glebarez)`},
}

var (
	denial   = regexp.MustCompile(`(?i)\b(?:there (?:is|are)|ha[sv]e?) no\b[^.|:;]*|\b(?:does|do) not have\b[^.|;]*|\bcannot\b[^.|;]*|[|;] no(?:ne)?\b[^|]*\|?[^.|]*`)
	ofErrand = regexp.MustCompile(`(?i)\berrand (?:has no|does not have|lacks)\b[^.|;]*`)
	wrapped  = regexp.MustCompile(`\n +|\n([^\n#|>\x60-])`)
)

// denials returns what a page says that errand does not have, with a few words more: in the
// README and the page for newcomers all denials, in others those that name errand.
func denials(name, page string) []string {
	page = wrapped.ReplaceAllString(page, " $1")
	if name != "README.md" && name != "docs/coming-from.md" {
		return ofErrand.FindAllString(page, -1)
	}
	said := denial.FindAllString(page, -1)
	_, list, _ := strings.Cut(page, "\n## What errand has not got\n")
	list, _, _ = strings.Cut(list, "\n## ")
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "- ") {
			said = append(said, line)
		}
	}
	return said
}

// What pages say that errand lacks is known here, and is not there.
func TestLacks(t *testing.T) {
	there := haves(t)
	used := map[string]bool{}
	for _, page := range pages(t) {
		for _, said := range denials(filepath.ToSlash(page), read(t, page)) {
			known := false
			for _, l := range lacks {
				if strings.Contains(said, l.words) {
					known, used[l.words] = true, true
				}
			}
			if !known {
				t.Errorf("%s: %q is not in the list of what errand lacks: say there what would belie it", page, said)
			}
		}
	}
	for _, l := range lacks {
		if !used[l.words] {
			t.Errorf("no page says %q: take it out of the list", l.words)
		}
		if l.belied == "" {
			continue
		}
		for _, name := range there {
			if regexp.MustCompile(l.belied).MatchString(name) {
				t.Errorf("a page says %q, but there is %s", l.words, name)
			}
		}
	}
}

func TestLacks_denials(t *testing.T) {
	page := "It has\nno web page.\n\n| UI | the command | There is no web page. |\n| UI | none |\n\n## What errand has not got\n\n- A web\n  page.\n"
	if got := denials("README.md", page); len(got) != 4 {
		t.Errorf("found %q", got)
	}
	if got := denials("docs/jobs.md", page+"\nThere is no room. errand has\n  no web page.\n"); len(got) != 1 {
		t.Errorf("found %q where only what names errand counts", got)
	}
}

// haves are the public packages, their exported names, and the verbs of the command.
func haves(t *testing.T) (names []string) {
	t.Helper()
	f, err := house.Count(".")
	if err != nil {
		t.Fatal(err)
	}
	for dir := range f.Names {
		names = append(names, dir)
		for file, parsed := range parseDir(t, dir) {
			if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(dir, "storage") {
				continue // an application does not call a store
			}
			for _, d := range parsed.Decls {
				names = append(names, exportedNames(d)...)
			}
		}
	}
	verbs, err := filepath.Glob("cmd/errand/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range verbs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bUse:\s+"(\w+)`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, "errand "+m[1])
		}
	}
	if len(names) < 500 {
		t.Fatalf("only %d names found", len(names))
	}
	return names
}

// exportedNames returns those of a declaration, with the methods and fields of types.
func exportedNames(d ast.Decl) (names []string) {
	add := func(of string, n *ast.Ident) {
		if n.IsExported() {
			names = append(names, of+n.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		of := ""
		if d.Recv != nil {
			of = house.Receiver(d.Recv.List[0].Type) + "."
		}
		add(of, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					add("", n)
				}
			case *ast.TypeSpec:
				add("", spec.Name)
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, n := range field.Names {
							add(spec.Name.Name+".", n)
						}
					}
				}
			}
		}
	}
	return names
}
