//go:build postgres

package main

import (
	"strings"
	"testing"

	"github.com/errandq/errand/internal/pgtest"
)

func TestServers_loseNothing(t *testing.T) {
	pgtest.Need(t)
	const n = 100
	for _, e := range servers {
		t.Run(e.name, func(t *testing.T) {
			for relaxed, want := range map[bool]string{false: "fsync on, synchronous_commit on", true: "fsync on, synchronous_commit off"} {
				q, err := e.open(t.Context(), setup{relaxed: relaxed})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := q.Durability(t.Context()); err != nil || !strings.HasSuffix(got, want) {
					t.Errorf("durability %q, %v; want %s", got, err, want)
				}
				enqueueEachWay(t, q, n)
				left(t, q, n)
				losesNothing(t, q, n)
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
