package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGenerate_GivesTheCommittedFile(t *testing.T) {
	want, err := os.ReadFile("../../events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(generate(), want) {
		t.Error("events.jsonl is not what the generator gives: run go generate ./examples/outbox")
	}
}
