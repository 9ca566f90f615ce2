// Command lists writes the pages of a checkout that programs make.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/errandq/errand/internal/house"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: lists directory")
	}
	page, err := house.Guarantees(os.Args[1])
	if err != nil {
		fail(err)
	}
	if err := os.WriteFile(filepath.Join(os.Args[1], "docs", "lists", "guarantees.md"), []byte(page), 0o600); err != nil {
		fail(err)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
