package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// counting counts the statements of a transaction.
type counting struct {
	execer
	n map[string]int
}

func (c *counting) exec(text string, args ...any) (sql.Result, error) {
	c.n[text]++
	return c.execer.exec(text, args...)
}

func (c *counting) row(text string, args []any, dest ...any) error {
	c.n[text]++
	return c.execer.row(text, args, dest...)
}

func (c *counting) each(text string, args, dest []any, f func()) error {
	c.n[text]++
	return c.execer.each(text, args, dest, f)
}

func openGroups(t *testing.T, limit int64) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	limitGroups(t, s, limit)
	return s
}

func limitGroups(t *testing.T, s *Store, limit int64) {
	t.Helper()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: limit}); err != nil {
		t.Fatal(err)
	}
}

func members(n int, group func(i int) string) (jobs []storage.NewJob) {
	for i := range n {
		jobs = append(jobs, storage.NewJob{Queue: "q", Kind: "k", Args: []byte("{}"), Group: group(i)})
	}
	return jobs
}

// What is asked about a group does not grow with the members that come or end in one call.
func TestRegroup_OncePerCall(t *testing.T) {
	const n = 20
	s, now := openGroups(t, n), time.Now()
	got := counted(t, s, func(t *tx) error {
		_, err := t.enqueue(now, members(2*n, func(int) string { return "g" }), nil)
		return err
	})
	if got[sqlTallyOne] != 1 || got[sqlGroupHeads] != 0 || got[sqlFirstBlocked] != 0 {
		t.Errorf("%d members came: %d counts, %d lists of heads, %d looks for the first", 2*n, got[sqlTallyOne], got[sqlGroupHeads], got[sqlFirstBlocked])
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 2 * n}}}
	res, err := s.Exchange(t.Context(), now, x)
	if err != nil || len(res.Leased) != n {
		t.Fatalf("leased %d (%v), want %d", len(res.Leased), err, n)
	}
	x.Wants = nil
	for _, l := range res.Leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	got = counted(t, s, func(t *tx) error {
		_, err := t.exchange(now, &x, promoteStep)
		return err
	})
	if got[sqlTallyOne] != 1 || got[sqlGroupHeads] != 0 || got[sqlMove] != 1 {
		t.Errorf("%d members ended: %d counts, %d lists of heads, %d times others were let in", n, got[sqlTallyOne], got[sqlGroupHeads], got[sqlMove])
	}
}

// What is asked and written about groups does not grow with how many of them an exchange ends jobs
// of, but for the ends themselves.
func TestRegroup_OnceForAllGroups(t *testing.T) {
	const groups = 30
	s, now := openGroups(t, 1), time.Now()
	if _, err := s.Enqueue(t.Context(), now, members(2*groups, func(i int) string { return strconv.Itoa(i % groups) })); err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 2 * groups}}}
	for range 2 {
		res, err := s.Exchange(t.Context(), now, x)
		if err != nil || len(res.Leased) != groups {
			t.Fatalf("leased %d (%v), want %d", len(res.Leased), err, groups)
		}
		end := storage.Exchange{}
		for _, l := range res.Leased {
			end.Finish = append(end.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		got := counted(t, s, func(t *tx) error {
			_, err := t.exchange(now, &end, promoteStep)
			return err
		})
		if got[sqlTally] != 1 || got[sqlMove] > 1 || got[sqlSetRoles] > 1 || got[sqlMembership]+got[sqlEndOption] != 0 {
			t.Errorf("a member of each of %d groups ended: %v", groups, got)
		}
	}
}

// counted returns how often f has run each text.
func counted(t *testing.T, s *Store, f func(t *tx) error) map[string]int {
	t.Helper()
	c := &counting{n: map[string]int{}}
	err := s.submit(t.Context(), &request{run: func(t *tx) error {
		c.execer, t.execer = t.execer, c
		return f(t)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c.n
}

// A step of Regroup ends with the group by which it has let in or blocked rules.RegroupMost members.
func TestRegroup_BoundedSteps(t *testing.T) {
	const groups, each = 4, rules.RegroupMost/2 + 2 // of which two keep their places
	s, now := openGroups(t, each), time.Now()
	jobs := members(groups*each, func(i int) string { return strconv.Itoa(i / each) })
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	limitGroups(t, s, 2)
	next, err := s.Regroup(t.Context(), "q", "")
	if err != nil || next != "1" {
		t.Errorf("the first step ended with group %q (%v), want %q", next, err, "1")
	}
}

// A limit that is lowered passes by the groups that have room, in steps of a bounded walk.
func TestRegroup_PassesIdleGroups(t *testing.T) {
	const idle = rules.RegroupWalk + 500
	s, now := openGroups(t, 4), time.Now()
	jobs := members(idle, func(i int) string { return fmt.Sprintf("%05d", i) })
	// The last group of the first walk is cut: it has one member there, and two after it.
	cut := fmt.Sprintf("%05d", rules.RegroupWalk-1)
	jobs = append(jobs, members(5, func(i int) string { return []string{cut, "x"}[i/2%2] })...)
	if _, err := s.Enqueue(t.Context(), now, jobs); err != nil {
		t.Fatal(err)
	}
	limitGroups(t, s, 2)
	steps := 0
	for after := ""; ; {
		next, err := s.Regroup(t.Context(), "q", after)
		if err != nil {
			t.Fatal(err)
		}
		if steps++; next == "" {
			break
		}
		after = next
	}
	if steps != 2 {
		t.Errorf("%d steps, want 2", steps)
	}
	var blocked []string
	if err := s.read.Select(&blocked, `SELECT group_key FROM errand_option WHERE role = 1 ORDER BY group_key`); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint([]string{"q " + cut, "q " + cut}); fmt.Sprint(blocked) != want {
		t.Errorf("blocked are members of %v, want %v", blocked, want)
	}
	if found, err := CheckInvariants(t.Context(), s.read); err != nil || len(found) > 0 {
		t.Errorf("found %v (%v)", found, err)
	}
}
