package postgres_test

import (
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/rules/rowstest"
	"github.com/errandq/errand/storage/postgres"
)

func (d *db) Rows(s storage.Store, fn func(rules.Rows) error) error {
	return s.(*postgres.Store).Rows(d.t.Context(), fn)
}

func (d *db) Waits() { d.waits() }

func TestStore_Rows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rowstest.DB { return newDB(t) })
}
