// Package sqlite is of an application, which has a Store with a Tx of its own.
package sqlite

// Store is no Store of errand.
type Store struct{}

// Tx calls fn.
func (*Store) Tx(fn func() error) error { return fn() }
