package postgres

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// What a Store does not do yet. Workers read holds, so these are answered.

// Hold is not supported yet.
func (s *Store) Hold(context.Context, time.Time, storage.Hold) error { return unsupported("Hold") }

// Release is not supported yet.
func (s *Store) Release(context.Context, time.Time, storage.Lane, string) (bool, error) {
	return false, unsupported("Release")
}

// Holds returns none: there can be none yet.
func (s *Store) Holds(context.Context, time.Time) ([]storage.HoldState, error) { return nil, nil }

// Stats is not supported yet.
func (s *Store) Stats(context.Context) ([]storage.LaneStats, error) {
	return nil, unsupported("Stats")
}

// Causes is not supported yet.
func (s *Store) Causes(context.Context, storage.Lane, int) ([]storage.Cause, error) {
	return nil, unsupported("Causes")
}

// Checkpoint is not supported yet.
func (s *Store) Checkpoint(context.Context, storage.Checkpoint) (storage.ItemResult, error) {
	return 0, unsupported("Checkpoint")
}

// States is not supported yet.
func (s *Store) States(context.Context, []storage.ID) ([]storage.State, error) {
	return nil, unsupported("States")
}

// Jobs is not supported yet.
func (s *Store) Jobs(context.Context, storage.Filter, string, int) (storage.Page, error) {
	return storage.Page{}, unsupported("Jobs")
}

// Redrive is not supported yet.
func (s *Store) Redrive(context.Context, time.Time, storage.Selection, string) (storage.Step, error) {
	return storage.Step{}, unsupported("Redrive")
}

// RunNow is not supported yet.
func (s *Store) RunNow(context.Context, time.Time, storage.Selection, storage.Waiting) (storage.Step, error) {
	return storage.Step{}, unsupported("RunNow")
}

// Change is not supported yet.
func (s *Store) Change(context.Context, time.Time, storage.Selection, storage.Edit) (storage.Step, error) {
	return storage.Step{}, unsupported("Change")
}

// Delete is not supported yet.
func (s *Store) Delete(context.Context, storage.Selection) (storage.Step, error) {
	return storage.Step{}, unsupported("Delete")
}

// Ahead is not supported yet.
func (s *Store) Ahead(context.Context, storage.ID, int) (storage.Ahead, error) {
	return storage.Ahead{}, unsupported("Ahead")
}

// Check is not supported yet.
func (s *Store) Check(context.Context) (storage.Condition, error) {
	return storage.Condition{}, unsupported("Check")
}

// NotifyEvicted calls nobody, as nothing is evicted yet.
func (s *Store) NotifyEvicted(func(time.Time, []storage.Evicted)) (cancel func()) { return func() {} }
