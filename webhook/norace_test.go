//go:build !race

package webhook_test

// raced reports whether the race detector is on.
const raced = false
