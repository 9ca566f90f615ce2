//go:build race

package engine_test

// raced tells that the race detector is on, which makes all some times slower.
const raced = true
