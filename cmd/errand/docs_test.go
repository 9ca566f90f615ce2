package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// block is a command and what it writes, as pages show them.
var block = regexp.MustCompile("(?s)```console( running)?\n\\$ errand ([^\n]*)\n(.*?)```")

var anyID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// alike has what differs between runs look the same: IDs, times, and the versions of what
// the program is built with.
func alike(text string) string {
	for _, r := range [][2]string{
		{anyID.String(), placeholder.String()},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, "2026-03-01 12:00:00"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?`, "2026-03-01T12:00:00"},
		{` \d+(\.\d+)?m?s `, " 1ms "},
		{` after \d+(\.\d+)?m?s`, " after 1ms"},
		{`[.▁▂▃▄▅▆▇█]{24}`, ".......................█"}, // by the hour of the clock
		{` +`, " "},
		{`(?m)^ ?\d+ (\d+ mail )`, " 1 ${1}"}, // the ID of a cause
		{`whs(ec|k)_[A-Za-z0-9+/=]+`, "whs${1}_secret"},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:9000"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// What the pages show of this command is what it writes. The file jobs.db is that of
// fixture, without the job of control characters, and shop.db that of shop. In a block of "console running" the job
// that is named runs, and to leave it as it is ends with status 1.
//
//errand:shows output of the command on the pages | | it is the real output
func TestDocs_commands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ids, err := fixture(t.Context(), filepath.Join(dir, "jobs.db"))
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, "dead", "purge", filepath.Join(dir, "jobs.db"), ids["EVIL"], "--yes")
	db, err := os.ReadFile(filepath.Join(dir, "jobs.db"))
	if err != nil {
		t.Fatal(err)
	}
	shop(t, filepath.Join(dir, "shop.db"), receiver(t))
	shopDB, err := os.ReadFile(filepath.Join(dir, "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range append(pages, "../../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		changed := block.ReplaceAllStringFunc(string(content), func(whole string) string {
			shown++
			m := block.FindStringSubmatch(whole)
			line, want := m[2], 0
			inDir := strings.Contains(line, "jobs.db") || strings.Contains(line, "shop.db")
			if inDir {
				t.Chdir(dir)
				if err := errors.Join(os.WriteFile("jobs.db", db, 0o600), os.WriteFile("shop.db", shopDB, 0o600)); err != nil {
					t.Fatal(err)
				}
				id := idFor(line, ids)
				if m[1] != "" {
					busy, stop, err := live("jobs.db", true)
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}()
					id, want = busy, statusFindings
				}
				line = placeholder.ReplaceAllString(line, id)
			}
			status, got, errs := errand(t, "", shellWords(line)...)
			if status != want || errs != "" {
				t.Errorf("%s: errand %s: status %d: %s", page, m[2], status, errs)
			}
			if inDir {
				t.Chdir(home)
			}
			if alike(got) == alike(m[3]) {
				return whole
			}
			if !*update {
				t.Errorf("%s: errand %s writes\n%s", page, m[2], got)
			}
			got = numbered(got)
			return strings.TrimSuffix(whole, m[3]+"```") + got + "```"
		})
		if *update && changed != string(content) {
			if err := os.WriteFile(page, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if shown == 0 {
		t.Error("the pages show nothing")
	}
}

// shellWords are those of a line of a shell, some of them in single quotes.
func shellWords(line string) []string {
	all := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
	for i, w := range all {
		all[i] = strings.Trim(w, "'")
	}
	return all
}

// numbered replaces the IDs of a text: the first by the placeholder, a second one by the ID
// after it.
func numbered(text string) string {
	seen := map[string]string{}
	return anyID.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			p := placeholder.String()
			seen[id] = p[:len(p)-2] + strconv.Itoa(57+len(seen))
		}
		return seen[id]
	})
}

// home is the folder of the tests.
var home = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

// idFor returns the ID of a job that a line can be about.
func idFor(line string, ids map[string]string) string {
	switch {
	case strings.Contains(line, "dead "), strings.Contains(line, "jobs rm"):
		return ids["DEAD"]
	case strings.Contains(line, "jobs wait"):
		return ids["DONE"]
	case strings.Contains(line, "jobs run"), strings.Contains(line, "jobs why"), strings.Contains(line, "jobs show"):
		return ids["RETRYING"]
	}
	return ids["READY"]
}

// inline is a command in the text of a page; afterPipe is one in a line of a shell.
var (
	inline    = regexp.MustCompile("`errand ([^`\n]+)`")
	shell     = regexp.MustCompile("(?s)```sh\n(.*?)```")
	afterPipe = regexp.MustCompile(`(?m)(?:^|\| )errand ([^|#\n]+)`)
)

// Each command that a page names in its text or in a script exists, with its flags.
func TestDocs_named(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, "../../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := inline.FindAllStringSubmatch(string(content), -1)
		for _, script := range shell.FindAllStringSubmatch(string(content), -1) {
			lines = append(lines, afterPipe.FindAllStringSubmatch(script[1], -1)...)
		}
		for _, m := range lines {
			named++
			line, _, _ := strings.Cut(m[1], " | ")
			if fault := unknown(shellWords(line)); fault != "" {
				t.Errorf("%s: errand %s: %s", page, m[1], fault)
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d commands found", named)
	}
	for line, want := range map[string]bool{"jobs show FILE ID": true, "jobs shew FILE": false, "doctor --fool": false, "jbos ls": false} {
		if got := unknown(shellWords(line)) == ""; got != want {
			t.Errorf("errand %s is known: %t, want %t", line, got, want)
		}
	}
}

// unknown returns what is wrong with the words of a command, or "".
func unknown(words []string) string {
	root := newRoot(&tool{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	// Of a command that only groups others the next word has to be one of them.
	if len(rest) > 0 && onlyGroups(cmd) && cmd.Name() != "help" && !strings.HasPrefix(rest[0], "-") {
		return "no command " + rest[0]
	}
	for _, w := range rest {
		if w == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if strings.HasPrefix(w, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return "no flag " + w
		}
	}
	return ""
}
