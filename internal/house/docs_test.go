package house_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the README and all of docs.
func pages(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil || len(names) < 4 {
		t.Fatalf("docs has the pages %v, %v", names, err)
	}
	return append(names, "README.md")
}

// allPages are those and all others, such as the changelog.
func allPages(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") && filepath.ToSlash(path) != "internal/house/claims.md" { // which is part of a page
			names = append(names, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// goFiles reads the files of the repository whose paths match.
func goFiles(t *testing.T, match func(path string) bool) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && match(filepath.ToSlash(path)) {
			files[path] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func isExample(name string) bool {
	return strings.HasPrefix(name, "examples/") || strings.HasPrefix(path.Base(name), "example_")
}

// What the pages show is what runs: each block of Go stands in an example, in
// one piece but where it says "// ...", at whatever depth.
//
//errand:shows code and log lines on the pages | | each block of Go is a piece of an example that is run, each log line one of the code, each link leads somewhere
func TestDocs_code(t *testing.T) {
	examples := goFiles(t, isExample)
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, page := range pages(t) {
		for _, m := range block.FindAllStringSubmatch(read(t, page), -1) {
			shown := false
			for _, source := range examples {
				shown = shown || excerpt(source, m[1])
			}
			if !shown {
				t.Errorf("%s: no example has this:\n%s", page, m[1])
			}
		}
	}
}

// Examples that serve HTTP beside a worker do it in one form.
func TestDocs_serve(t *testing.T) {
	form := read(t, "examples/production/serve.go")
	for _, dir := range []string{"appdb", "dashboard", "metrics", "relay"} {
		if read(t, "examples/"+dir+"/serve.go") != form {
			t.Errorf("serve.go of examples/%s is another than that of examples/production", dir)
		}
	}
	for name, source := range goFiles(t, func(name string) bool { return isExample(name) && path.Base(name) != "serve.go" }) {
		if strings.Contains(source, "errand.NewWorker(") && strings.Contains(source, "http.Server{") {
			t.Errorf("%s serves beside a worker in a form of its own: want a serve.go as that of examples/production", name)
		}
	}
}

// excerpt reports whether the source has the pieces of the block, in order.
func excerpt(source, block string) bool {
	lines := strings.Split(source, "\n")
	for piece := range strings.SplitSeq(block, "\n// ...\n") {
		want := strings.Split(strings.Trim(piece, "\n"), "\n")
		at := 0
		for at <= len(lines)-len(want) && !sameLines(lines[at:at+len(want)], want) {
			at++
		}
		if at > len(lines)-len(want) {
			return false
		}
		lines = lines[at+len(want):]
	}
	return true
}

// sameLines reports whether the lines are those wanted, all indented by the
// same tabs.
func sameLines(lines, want []string) bool {
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	return slices.EqualFunc(lines, want, func(line, want string) bool {
		return line == want && line == "" || line == indent+want
	})
}

func TestDocs_excerpt(t *testing.T) {
	const source = "func f() {\n\ta()\n\n\tif b() {\n\t\tc()\n\t}\n\td()\n}\n"
	for _, c := range []struct {
		block string
		want  bool
	}{
		{"a()\n\nif b() {\n\tc()\n}\n", true},
		{"a()\n// ...\nd()\n", true},
		{"d()\n// ...\na()\n", false},
		{"a()\nif b() {\n", false},
		{"if b() {\nc()\n", false},
		{"a\n", false},
	} {
		if got := excerpt(source, c.block); got != c.want {
			t.Errorf("%q: %t, want %t", c.block, got, c.want)
		}
	}
}

// The log lines that pages quote, msg="...", are lines of the code.
//
//errand:shows code and log lines on the pages
func TestDocs_log(t *testing.T) {
	var code strings.Builder
	for _, source := range goFiles(t, func(path string) bool { return !strings.HasSuffix(path, "_test.go") }) {
		code.WriteString(source)
	}
	quoted := regexp.MustCompile(`msg="([^"]+)"`)
	for _, page := range pages(t) {
		for _, m := range quoted.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(code.String(), `"`+m[1]) {
				t.Errorf("%s: nothing logs %q", page, m[1])
			}
		}
	}
}

// Pages link to what exists, and the README to all of them.
//
//errand:shows code and log lines on the pages
func TestReadme_links(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	block := regexp.MustCompile("(?s)```go\n.*?```")
	linked := map[string]bool{}
	for _, name := range allPages(t) {
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(read(t, name), ""), -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if name == "README.md" {
				linked[to] = true
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("a link of %s leads nowhere: %v", name, err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, to)), m[2]) {
				t.Errorf("a link of %s leads nowhere: %s has no %s", name, to, m[2])
			}
		}
	}
	for _, name := range pages(t) {
		if name != "README.md" && !linked[name] {
			t.Errorf("README.md does not link to %s", name)
		}
	}
}

// anchors returns those of the headings of a page, as GitHub makes them.
func anchors(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// What the README shows is what runs.
func TestReadme(t *testing.T) {
	readme := read(t, "README.md")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("README.md has no program")
	}
	program := blocks[0][1]
	if program != read(t, "examples/quickstart/main.go") {
		t.Error("the program of README.md is not examples/quickstart/main.go")
	}
	n := 0
	for line := range strings.Lines(program) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	// It would have 20 if it needed not stop in order: signals, an error of the
	// enqueue, Close and the exit status take the other 9.
	if n > 29 {
		t.Errorf("the program has %d lines: want at most 29", n)
	}
	if !strings.Contains(readme, "```sh\ngo run ./examples/outbox\ngo test ./...\n```") {
		t.Error("README.md lacks the two commands")
	}
}

// The limits that are written down are those of the code.
func TestReadme_limits(t *testing.T) {
	for _, name := range []string{"README.md", "doc.go"} {
		text := read(t, name)
		for _, want := range []string{"256 KiB", "16 KiB", "[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", "24 h", "8 KiB", "20 failures"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
	}
}

// The files that docs/architecture.md leads through exist, and are together short enough for
// an evening. Each other file of production is in the list of CONTRIBUTING.md.
func TestArchitecture(t *testing.T) {
	const most = 5610
	text := read(t, "docs/architecture.md")
	_, list, ok := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Where to look\n")
	list, _, _ = strings.Cut(list, "\n## ")
	if !ok {
		t.Fatal("CONTRIBUTING.md does not say where to look")
	}
	where := map[string]string{}
	total := 0
	for _, m := range heartFile.FindAllStringSubmatch(text, -1) {
		total += strings.Count(read(t, m[1]), "\n")
		where[m[1]] = "the way of a job"
	}
	if total < most/2 || total >= most {
		t.Errorf("the files to read have %d lines: want less than %d, and the page to list them", total, most)
	}
	for _, file := range filesNamed(t, list) {
		if was := where[file]; was != "" {
			t.Errorf("%s is in the list of the others, and in %s too", file, was)
		}
		where[file] = "the list of the others"
	}
	for _, dir := range []string{".", "storage", "internal/engine", "storage/sqlite"} {
		for file := range goFiles(t, func(path string) bool { return filepath.Dir(path) == dir }) {
			file = filepath.ToSlash(file)
			if where[file] == "" && !strings.HasSuffix(file, "_test.go") && filepath.Base(file) != "doc.go" {
				t.Errorf("%s is neither on the way of a job nor in the list of the others", file)
			}
		}
	}
	filesNamed(t, text)
}

var (
	heartFile  = regexp.MustCompile(`(?m)^\d+\. \[[^]]+\]\(\.\./([^)]+)\):`)
	nameInCell = regexp.MustCompile("`([a-z/0-9_]+\\.go)`")
)

// filesNamed returns the Go files that the cells of tables name, and fails for
// those that are not there. A name without a folder is in that of the name before
// it in its cell, and else in the root.
func filesNamed(t *testing.T, tables string) (names []string) {
	t.Helper()
	for _, cell := range slices.Concat(tableRows(tables)...) {
		dir := "."
		for _, m := range nameInCell.FindAllStringSubmatch(cell, -1) {
			name := path.Join(dir, m[1])
			if strings.Contains(m[1], "/") {
				name = m[1]
			}
			dir = path.Dir(name)
			if _, err := os.Stat(filepath.FromSlash(name)); err != nil {
				t.Errorf("the page names %s: %v", name, err)
			}
			names = append(names, name)
		}
	}
	return names
}

// What the pages have run by go is there: folders, tests and benchmarks.
func TestDocs_goCommands(t *testing.T) {
	script := regexp.MustCompile("(?s)```sh\n(.*?)```")
	command := regexp.MustCompile(`(?m)^.*\bgo (?:-C (\w+) )?(run|test)\b.*$`)
	folder := regexp.MustCompile(`(?: |^)\./([a-z/_-]+)`)
	name := regexp.MustCompile(`-(?:run|bench) '?\^?([A-Z]\w+)`)
	n := 0
	for _, page := range pages(t) {
		for _, block := range script.FindAllStringSubmatch(read(t, page), -1) {
			for _, m := range command.FindAllStringSubmatch(block[1], -1) {
				n++
				dir := m[1]
				if f := folder.FindStringSubmatch(m[0]); f != nil {
					dir = f[1]
				}
				if _, err := os.Stat(filepath.Join(".", dir)); err != nil {
					t.Errorf("%s: %s: %v", page, m[0], err)
					continue
				}
				if f := name.FindStringSubmatch(m[0]); f != nil && !declares(t, dir, f[1]) {
					t.Errorf("%s: %s: no test or benchmark in %s is called so", page, m[0], dir)
				}
			}
		}
	}
	if n < 6 {
		t.Errorf("only %d commands found", n)
	}
}

var runnable = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// declares reports whether a package has a test or a benchmark whose name has the text.
func declares(t *testing.T, dir, text string) bool {
	for _, file := range parseDir(t, dir) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && runnable.MatchString(f.Name.Name) && strings.Contains(f.Name.Name, text) {
				return true
			}
		}
	}
	return false
}

// Names of the root that the pages and the doc comments of other packages use are there.
func TestDocs_names(t *testing.T) {
	declared := map[string]bool{}
	for name, file := range parseDir(t, ".") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						declared[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							declared[n.Name] = true
						}
					}
				}
			}
		}
	}
	texts := map[string]string{}
	for _, name := range allPages(t) {
		texts[name] = read(t, name)
	}
	for _, dir := range []string{"webhook", "topic", "topic/filter", "relay", "gate", "policy", "storage", "storage/sqlite"} {
		for name, file := range parseDir(t, dir) {
			for _, c := range file.Comments {
				texts[name] += c.Text()
			}
		}
	}
	use := regexp.MustCompile(`[^.\w/]errand\.([A-Z]\w*)`)
	n := 0
	for name, text := range texts {
		for _, m := range use.FindAllStringSubmatch(text, -1) {
			if n++; !declared[m[1]] {
				t.Errorf("%s: the root has no %s", name, m[1])
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d names found", n)
	}
}
