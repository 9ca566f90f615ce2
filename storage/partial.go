package storage

import (
	"fmt"
	"slices"
	"strings"
)

// Partial is implemented by a Store that does not do all that this package describes, such as
// one that is being built.
type Partial interface {
	// Lacks returns what the Store lacks. A call that needs any of that returns [ErrLacking]
	// and changes nothing. A Finish of an Exchange that does is [Unable] alone: its lease is
	// as it was, and all else takes effect. A setting that is set to zero needs nothing.
	Lacks() []Feature
}

// Feature is something that a Store may lack: a setting, or a method of Store, by its name, or
// one of these.
type Feature string

// The features that are neither settings nor methods.
const (
	FeatureTags        Feature = "tags"
	FeatureWindows     Feature = "StartWithin, FinishWithin and OnExpire"
	FeatureUnavailable Feature = "OutcomeUnavailable"
	FeatureKept        Feature = "results and progress"
	FeatureTogether    Feature = "jobs that are leased together" // by ByGroup, or Min and Wait
	FeatureNewest      Feature = "the order newest"
	FeatureUrgent      Feature = "urgent jobs" // which a RunNow needs that names a single job
)

// LacksOf returns what s lacks, nil if it does all.
func LacksOf(s Store) []Feature {
	if p, ok := s.(Partial); ok {
		return p.Lacks()
	}
	return nil
}

// Lacking returns an [ErrLacking] that names those of needs which lacks has, nil if there are none.
func Lacking(lacks, needs []Feature) error {
	var names []string
	for _, f := range needs {
		if slices.Contains(lacks, f) && !slices.Contains(names, string(f)) {
			names = append(names, string(f))
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrLacking, strings.Join(names, ", "))
}

// Needs returns what a Store may lack that j needs.
func (j *NewJob) Needs() (all []Feature) {
	if len(j.Tags) > 0 {
		all = append(all, FeatureTags)
	}
	if j.StartWithin > 0 || j.FinishWithin > 0 || j.OnExpire != "" {
		all = append(all, FeatureWindows)
	}
	return all
}

// Needs returns what a Store may lack that f needs.
func (f *Finish) Needs() (all []Feature) {
	if f.Outcome == OutcomeUnavailable {
		all = append(all, FeatureUnavailable)
	}
	if f.Result != nil || f.Progress != nil {
		all = append(all, FeatureKept)
	}
	for i := range f.Then {
		all = append(all, f.Then[i].Needs()...)
	}
	if f.Spent != nil {
		all = append(all, f.Spent.Needs()...)
	}
	return all
}

// Needs returns what a Store may lack that w needs.
func (w *Want) Needs() (all []Feature) {
	if w.ByGroup > 0 || w.KeepsBack() {
		all = append(all, FeatureTogether)
	}
	return all
}

// Needs returns what a Store may lack that s needs.
func (s Settings) Needs() (all []Feature) {
	for name, value := range s {
		if value != 0 {
			all = append(all, Feature(name))
		}
		if name == SettingOrder && value == int64(Newest) {
			all = append(all, FeatureNewest)
		}
	}
	slices.Sort(all)
	return all
}
