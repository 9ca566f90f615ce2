package postgres_test

import (
	"testing"

	"github.com/errandq/errand/storage/storagetest"
)

// The features of overlapping histories that the Store does not have yet.
var lacking = []string{
	"caps", "change", "checkpoint", "conflicts", "delete", "expiry", "groups", "handoff", "holds", "keys",
	"list", "redrive", "run_now", "schedule", "stats", "throttles", "tx",
}

func TestStore_OverlappingHistories(t *testing.T) {
	storagetest.RunOverlapping(t, func(t *testing.T) storagetest.DB { return newDB(t) }, 10, storagetest.Without(lacking...))
}
