// Command count prints what a visitor of a checkout meets, one figure a line.
//
//	go run ./internal/house/count [directory]
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/errandq/errand/internal/house"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	f, err := house.Count(dir)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%7d Go files in the root\n", f.RootFiles)
	for _, folder := range slices.Sorted(maps.Keys(f.Names)) {
		fmt.Printf("%7d exported types, functions and methods in %s\n", f.Names[folder], folder)
	}
	var docs, words, rows int
	longest := house.Page{}
	for _, p := range f.Pages {
		fmt.Printf("%7d words, %d rows of tables in %s\n", p.Words, p.Rows, p.Name)
		words, rows = words+p.Words, rows+p.Rows
		if p.Name != "README.md" {
			docs++
		}
		if p.Words > longest.Words {
			longest = p
		}
	}
	fmt.Printf("%7d pages, and README.md\n%7d words\n%7d rows of tables\n%7d words in the longest, %s\n", docs, words, rows, longest.Words, longest.Name)
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
