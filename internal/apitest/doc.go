// Package apitest tests the public API from outside. The tests to read first are in
// queue_test.go of the root.
package apitest
