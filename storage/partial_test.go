package storage_test

import (
	"slices"
	"testing"

	"github.com/errandq/errand/storage"
)

// What takes the place of a Finish is asked for what it needs too.
func TestFinish_Needs(t *testing.T) {
	spent := storage.Finish{Outcome: storage.OutcomeUnavailable, Result: []byte("1")}
	f := storage.Finish{Outcome: storage.OutcomeDone, Spent: &spent, Then: []storage.NewJob{{Tags: []string{"a"}}}}
	want := []storage.Feature{storage.FeatureTags, storage.FeatureUnavailable, storage.FeatureKept}
	if got := f.Needs(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
