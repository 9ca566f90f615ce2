package postgres_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand/storage/postgres"
)

var (
	changesJobs = regexp.MustCompile(`(UPDATE|DELETE FROM|INSERT INTO) errand_(job|finished) `)
	setsOfJobs  = regexp.MustCompile(`(?s)UPDATE errand_job \w* ?SET (.*?)\s(FROM|WHERE)`)
	isColumn    = regexp.MustCompile(`^\w+ = (f\.\w+|\$\d+(::\w+)?|true|false|NULL|0)$`)
)

// What becomes of a row that was read is decided by package rules, and so are the numbers: a
// statement sets columns to parameters.
func TestStatements_DecideNothing(t *testing.T) {
	for _, text := range postgres.WithoutRows {
		if !slices.Contains(postgres.Prepared, text) || !changesJobs.MatchString(text) {
			t.Errorf("this statement changes no jobs: %s", text)
		}
	}
	sets := 0
	for _, text := range postgres.Prepared {
		if slices.Contains(postgres.WithoutRows, text) {
			continue
		}
		if !slices.Contains(postgres.Counting, text) && strings.Contains(text, "INSERT INTO errand_delta") {
			t.Errorf("this statement counts: %s", text)
		}
		for _, set := range setsOfJobs.FindAllStringSubmatch(text, -1) {
			for one := range strings.SplitSeq(set[1], ",") {
				if sets++; !isColumn.MatchString(strings.TrimSpace(one)) {
					t.Errorf("this statement decides what %q is: %s", strings.TrimSpace(one), text)
				}
			}
		}
	}
	if sets < 20 {
		t.Errorf("only %d columns are set", sets)
	}
}
