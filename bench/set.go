package main

import (
	"fmt"
	"sync/atomic"
)

// set counts the different jobs that were done.
type set struct {
	done  []atomic.Bool
	n     atomic.Int64
	again atomic.Int64
	alien atomic.Int64
}

func newSet(n int) *set { return &set{done: make([]atomic.Bool, n)} }

// add returns how many different jobs were done. Jobs that were not decoded are
// only counted.
func (s *set) add(j *job) int {
	if j.Raw == nil {
		if j.N < 0 || j.N >= len(s.done) {
			s.alien.Add(1)
			return 0
		}
		if s.done[j.N].Swap(true) {
			s.again.Add(1)
			return 0
		}
	}
	return int(s.n.Add(1))
}

func (s *set) err() error {
	if n := int(s.n.Load()); n != len(s.done) || s.again.Load() != 0 || s.alien.Load() != 0 {
		return fmt.Errorf("%d of %d jobs were done, %d again, %d unknown", n, len(s.done), s.again.Load(), s.alien.Load())
	}
	return nil
}
