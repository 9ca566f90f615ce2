package storagetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/errandq/errand/storage"
)

// noCauses is a Memory that does not know Causes yet.
func noCauses() DB {
	return newBroken(func(in *instance) storage.Store {
		h := sound(in)
		h.causes = func(context.Context, storage.Lane, int) ([]storage.Cause, error) { return nil, errors.New("not yet") }
		return h
	})
}

func TestRun_without(t *testing.T) {
	var fail []string
	for _, c := range cases() {
		if record(t, func(t testing.TB) { c.check(t, noCauses()) }) != "" {
			fail = append(fail, c.name)
		}
	}
	if len(fail) < 2 || len(fail) > len(cases())/2 {
		t.Fatalf("%d cases fail without Causes", len(fail))
	}
	Run(t, func(*testing.T) DB { return noCauses() }, Without(fail[0]), Without(fail[1:]...), Lacking(noClock, noStarts, noPromoter))
}

func TestRun_withoutWhatPasses(t *testing.T) {
	c := caseNamed("cause_list")
	if len(c) != 1 {
		t.Fatal("the case has another name now")
	}
	for _, sub := range []struct {
		db   DB
		want string
	}{
		{NewMemory(), "case cause_list passes: take it from Without"},
		{noCauses(), ""},
	} {
		if got := record(t, func(t testing.TB) { c[0].mustFail(t, sub.db) }); !strings.Contains(got, sub.want) || sub.want == "" && got != "" {
			t.Errorf("got %q, want %q", got, sub.want)
		}
	}
}

func TestRun_withoutNames(t *testing.T) {
	run := func(options ...Option) (out []string, failed string) {
		left := leaveOut(options)
		for _, name := range []string{"group", "group_all", "group_limit", "tx"} {
			if left.has(name) {
				out = append(out, name)
			}
		}
		return out, record(t, func(t testing.TB) { left.report(t, "case") })
	}
	for _, sub := range []struct {
		names []string
		out   []string
		fails string
	}{
		{nil, nil, ""},
		{[]string{"group"}, []string{"group"}, ""},
		{[]string{"group*"}, []string{"group", "group_all", "group_limit"}, ""},
		{[]string{"group_*", "tx"}, []string{"group_all", "group_limit", "tx"}, ""},
		{[]string{"tx", "grou"}, []string{"tx"}, `no case is called "grou": take it from Without`},
		{[]string{"group_l*", "g_*"}, []string{"group_limit"}, `no case is called "g_*": take it from Without`},
	} {
		if out, failed := run(Without(sub.names...)); !slices.Equal(out, sub.out) || (failed != "") != (sub.fails != "") || !strings.Contains(failed, sub.fails) {
			t.Errorf("Without(%q) leaves out %q and fails with %q, want %q and %q", sub.names, out, failed, sub.out, sub.fails)
		}
	}
}

func TestRun_withoutEnd(t *testing.T) {
	never := make(chan struct{})
	for want, run := range map[string]func(f *fixture){
		"panic: not yet":              func(*fixture) { panic("not yet") },
		"panic: at the end":           func(f *fixture) { f.Cleanup(func() { panic("at the end") }); f.FailNow() },
		"ended only with its context": func(f *fixture) { <-f.ctx.Done() },
		"does not end":                func(f *fixture) { <-never },
	} {
		synctest.Test(t, func(t *testing.T) {
			never = make(chan struct{})
			defer func() { close(never) }()
			if got := (testCase{run: run}).failure(t, NewMemory(), missing); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A case that is skipped for want of what is not listed is an error, and so is what is listed for
// want of which none is skipped.
func TestRun_lacking(t *testing.T) {
	lost := caseNamed("lost_others_committed")
	if len(lost) != 1 {
		t.Fatal("the case has another name now")
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, "the case needs what the store lacks: lost answers"},
		{[]string{noLoss}, ""},
		{[]string{noLoss, "storage.Topics"}, "no case is skipped for want of storage.Topics: take it from Lacking"},
	} {
		l := &lacking{names: c.names, ran: 1}
		got := record(t, func(t testing.TB) { lost[0].checkIn(context.Background(), t, NewMemory(), l) })
		got += record(t, func(t testing.TB) { l.report(t, 1) })
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("lacking %q: %q, want %q", c.names, got, c.want)
		}
	}
}

// A case is skipped where it needs what the store says that it lacks, and fails if the store has not said so.
func TestRun_partial(t *testing.T) {
	for name, feature := range map[string]storage.Feature{"redrive_ids": storage.FeatureTags, "outcome_stopped": storage.FeatureUnavailable} {
		c := caseNamed(name)
		if len(c) != 1 {
			t.Fatalf("the case %s has another name now", name)
		}
		for _, says := range []bool{true, false} {
			l := &lacking{}
			got := record(t, func(t testing.TB) {
				c[0].checkIn(context.Background(), t, newBroken(func(in *instance) storage.Store {
					p := soundPartly(in)
					p.lacks = []storage.Feature{feature}
					if !says {
						return p.hooks
					}
					return p
				}), l)
			})
			if (got == "") != says || (l.skipped[string(feature)] == 1) != says {
				t.Errorf("%s, which needs %s; the store says so: %t; skipped %v, and failed: %q", name, feature, says, l.skipped, got)
			}
		}
	}
}
