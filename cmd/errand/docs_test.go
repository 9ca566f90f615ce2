package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the pages show of this command is what it writes.
func TestDocs_commands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```console\n\\$ errand ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			shown++
			if got := succeed(t, strings.Fields(m[1])...); got != m[2] {
				t.Errorf("%s: errand %s writes\n%s", page, m[1], got)
			}
		}
	}
	if shown == 0 {
		t.Error("the pages show nothing")
	}
}
