package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/errandq/errand/storage/postgres"
)

// planNode is what EXPLAIN says of a part of a plan.
type planNode struct {
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Join Filter"`
	Plans   []planNode
}

// touched returns how many rows a plan has returned and compared.
func (n *planNode) touched() float64 {
	all := n.Loops * (n.Rows + n.Removed)
	for i := range n.Plans {
		all += n.Plans[i].touched()
	}
	return all
}

// What is counted by lanes looks at each row a few times, however many lanes there are, as the plans were
// made when all tables were empty.
func TestCounts_LookAtRowsOnce(t *testing.T) {
	d := planned(t)
	d.planner("") // sets how plans are made
	for name, text := range postgres.Counted {
		d.exec("PREPARE " + name + " AS " + text)
	}
	const lanes, deltas = 1000, 100_000
	d.exec(`INSERT INTO errand_lane (lane, queue, kind) SELECT i, 'q' || i, 'k' FROM generate_series(1, $1::integer) i`, lanes)
	d.exec(`INSERT INTO errand_delta (lane, number, n) SELECT i % $1 + 1, 2, 1 FROM generate_series(1, $2::integer) i`, lanes, deltas)
	for name := range postgres.Counted {
		call := "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE " + name
		if name == "lanes" {
			call += "('')"
		}
		var text []byte
		if err := d.conn.QueryRow(t.Context(), call).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var plans []struct{ Plan planNode }
		if err := json.Unmarshal(text, &plans); err != nil {
			t.Fatal(err)
		}
		if n := plans[0].Plan.touched(); n < deltas || n > 12*deltas {
			t.Errorf("%s touches %.0f rows, of %d: %s", name, n, deltas, text)
		}
	}
}
