package sqlite

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// What waits behind dead members is found from group to group, by indexes.
func TestBehindDead_PassesOverGroups(t *testing.T) {
	s := openTemp(t)
	plan := explain(t, s, sqlBehindDead)
	for line := range strings.Lines(plan) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "SCAN main.") || strings.HasPrefix(line, "SCAN w") || strings.Contains(line, "TEMP B-TREE") {
			t.Errorf("%s", line)
		}
	}
	for _, want := range []string{
		"SEARCH main.errand_option USING COVERING INDEX errand_option_dead (group_key>?)",
		"SEARCH main.errand_option USING COVERING INDEX errand_option_blocked (group_key>?)",
		"SEARCH main.errand_option USING COVERING INDEX errand_option_dead (group_key=?)",
		"SEARCH main.errand_dead USING INTEGER PRIMARY KEY (rowid=?)",
		"SEARCH w USING COVERING INDEX errand_option_blocked (group_key=? AND rowid>?)",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan lacks %q:\n%s", want, plan)
		}
	}
}

// However many queues there are, few groups are looked at in all, and the last of the list says so.
func TestBehindDead_ManyQueues(t *testing.T) {
	s := openTemp(t)
	raw, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	// In each of 1,000 queues one member waits behind a dead one in 1 group, and before one in 99.
	for i, role := range []rules.Role{rules.Waits, rules.Blocks, rules.Waits} {
		if _, err := raw.Exec(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
INSERT INTO errand_option (job, group_key, role) SELECT 1 + ?1 * 100000 + i, printf('q%04d %02d', i / 100, i % 100), ?2 FROM n WHERE ?1 < 2 OR i % 100 = 0`, i, role); err != nil {
			t.Fatal(err)
		}
	}
	cut := storage.BehindDead{More: true}
	got, err := s.BehindDead(t.Context(), "", 2000)
	if want := storage.BehindAll/99 + 1; err != nil || len(got) != want+1 || got[want] != cut || !got[want-1].More || got[want-2].More {
		t.Errorf("%d queues are found, %v; want %d, of which the last one says that there may be more, and that others were not looked at", len(got)-1, err, want)
	}
	if got, err := s.BehindDead(t.Context(), "q0900", 2000); err != nil || len(got) != 99 || got[98].More {
		t.Errorf("%d of the last queues are found, %v; want all 99", len(got), err)
	}
	if got, err := s.BehindDead(t.Context(), "", storage.BehindAll/99+1); err != nil || len(got) != storage.BehindAll/99+1 || got[len(got)-1].Queue == "" {
		t.Errorf("a full list of %d, %v, want queues alone", len(got), err)
	}
	if _, err := raw.Exec(`DELETE FROM errand_option WHERE job > 200000`); err != nil {
		t.Fatal(err)
	}
	if got, err := s.BehindDead(t.Context(), "", 10); err != nil || !slices.Equal(got, []storage.BehindDead{cut}) {
		t.Errorf("where nobody waits in any group that was looked at: %+v, %v, want %+v", got, err, cut)
	}
	if _, err := raw.Exec(`DELETE FROM errand_option WHERE group_key < 'q0600'`); err != nil {
		t.Fatal(err)
	}
	if got, err := s.BehindDead(t.Context(), "", 10); err != nil || len(got) > 0 {
		t.Errorf("where nobody waits, in fewer groups: %+v, %v, want none", got, err)
	}
}

// However many groups there are, few are looked at, and all queues are found.
func TestBehindDead_ManyGroups(t *testing.T) {
	const groups = 100_000
	s := openTemp(t)
	raw, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	// Groups of queues in which none, all or every second of the members wait behind a dead one.
	fill := func(queue string, first int, roles ...rules.Role) {
		t.Helper()
		for i, role := range roles {
			if _, err := raw.Exec(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
INSERT INTO errand_option (job, group_key, role) SELECT ?2 + i, printf('%s %06d', ?3, i), ?4 FROM n`, groups, first+i*groups, queue, role); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("a", 1_000_000, rules.Blocks)              // only dead members
	fill("b", 2_000_000, rules.Placed, rules.Waits) // only live ones
	fill("c", 3_000_000, rules.Blocks, rules.Waits) // one behind each dead member
	fill("d", 4_000_000, rules.Waits, rules.Blocks) // one before each
	if _, err := raw.Exec(`INSERT INTO errand_option (job, group_key, role) VALUES (1, 'a 0', 3), (2, 'a 0', 1), (3, 'a 099999', 1), (4, 'e x', 3), (5, 'e x', 1)`); err != nil {
		t.Fatal(err)
	}
	epoch := fromMicros(0) // the rows of the jobs are missing
	got, err := s.BehindDead(t.Context(), "", 10)
	want := []storage.BehindDead{
		{Queue: "a", Groups: 1, Jobs: 1, Since: epoch},
		{Queue: "c", Groups: storage.BehindGroups, Jobs: storage.BehindGroups, Since: epoch, More: true},
		{Queue: "e", Groups: 1, Jobs: 1, Since: epoch},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("behind dead members are\n%+v, %v, want\n%+v", got, err, want)
	}
	looks := 0
	for from := ""; ; {
		rows, err := s.read.Query(sqlBehindDead, from)
		if err != nil {
			t.Fatal(err)
		}
		b := rules.Behind{Limit: 10}
		next := rules.Next{}
		for next == (rules.Next{}) && rows.Next() {
			var key string
			var died, n int64
			if err := rows.Scan(&key, &died, &n); err != nil {
				t.Fatal(err)
			}
			next = b.Add(key, n, fromMicros(died))
			looks++
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if from = next.From; from == "" {
			break
		}
	}
	if most := storage.BehindGroups + storage.BehindLooks + 10; looks > most {
		t.Errorf("%d groups were looked at, want at most %d", looks, most)
	}
}
