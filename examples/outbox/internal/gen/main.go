// Gen writes the order events that the outbox example delivers. The seed is
// fixed, so that everybody gets the same file.
package main

import (
	"flag"
	"log"
	"os"
)

func main() {
	out := flag.String("o", "events.jsonl", "file to write")
	flag.Parse()
	if err := os.WriteFile(*out, generate(), 0o644); err != nil {
		log.Fatal(err)
	}
}
