//go:build postgres

package main

import (
	"bytes"
	"encoding/json"
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

func TestServers_measureWorkloadsOfErrandAlone(t *testing.T) {
	pgtest.Need(t)
	const names = "enqueue-64-keys,drain-keys,drain-groups"
	want, err := chosen(names)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-json", "-rounds", "1", "-scale", "0.002", "-dir", t.TempDir(), "-systems", "postgres", "-workloads", names}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	for _, w := range want {
		var s sample
		if err := dec.Decode(&s); err != nil || s.Workload != w.name || s.Figures[figRate] <= 0 {
			t.Errorf("got %+v, %v: want the figures of %s", s, err, w.name)
		}
	}
}
