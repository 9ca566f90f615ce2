//go:build race

package torture_test

// raced tells whether the race detector is on.
const raced = true
