//go:build !race

package sqlite_test

// raced reports whether the race detector is on.
const raced = false
