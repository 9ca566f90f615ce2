//go:build race

package torture_test

// raced reports whether the race detector is on.
const raced = true
