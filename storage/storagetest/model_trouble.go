package storagetest

import (
	"context"
	"errors"

	"github.com/errandq/errand/storage"
)

// OpenHasty implements [Hasty].
func (m *Memory) OpenHasty() storage.Store {
	in := m.Open().(*instance)
	in.hasty = true
	return in
}

var _ storage.Troubled = (*instance)(nil)

// trouble is an error of an instance that could not use its database.
type trouble struct {
	error
	of   *instance
	open context.Context // of the Tx of the instance that was open; nil: none was
}

func (e *trouble) Unwrap() error { return e.error }

// Trouble implements [storage.Troubled].
func (in *instance) Trouble(err error) (is bool, open context.Context) {
	var all []error
	for all = append(all, err); len(all) > 0; all = all[1:] {
		switch e := all[0].(type) { //nolint:errorlint // walks the tree itself
		case *trouble:
			if e.of == in {
				return true, e.open
			}
		case interface{ Unwrap() []error }:
			all = append(all, e.Unwrap()...)
		default:
			if next := errors.Unwrap(e); next != nil {
				all = append(all, next)
			}
		}
	}
	return false, nil
}
