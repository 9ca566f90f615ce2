package storagetest

import "testing"

func TestMemory_overlapping(t *testing.T) {
	RunOverlapping(t, func(*testing.T) DB { return NewMemory() }, 50)
}

func TestMemory_bareOverlapping(t *testing.T) {
	RunOverlapping(t, func(*testing.T) DB { return bareDB{NewMemory()} }, 20)
}
