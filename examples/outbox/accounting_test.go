package main

import (
	"slices"
	"testing"

	"github.com/errandq/errand"
)

func TestAttempts_CountsFailuresAndTheLastOne(t *testing.T) {
	history := []errand.Failure{{Phase: "first"}, {Phase: "immediate"}, {Phase: "pre-backoff"}}
	for _, c := range []struct {
		name string
		job  errand.JobInfo
		want []string
	}{
		{"done at once", errand.JobInfo{State: errand.Done}, nil},
		{"done after retries", errand.JobInfo{State: errand.Done, Retry: 3, History: history}, []string{"first", "immediate", "pre-backoff", "pre-backoff"}},
		{"dead", errand.JobInfo{State: errand.Dead, Retry: 2, History: history}, []string{"first", "immediate", "pre-backoff"}},
		{"done after a redrive", errand.JobInfo{State: errand.Done, History: history[:1]}, []string{"first"}},
	} {
		if got := attempts(c.job); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
