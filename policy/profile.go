package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Profile is a set of limits for policies and documents. The limits depend on where a
// policy is used, not on its type.
type Profile uint8

const (
	// ProfileQueue is for jobs: delays from 0 in fractions of a second, up to
	// 1,000,000 retries, no limit to the total, all backoff functions, jitter.
	ProfileQueue Profile = iota
	// ProfileSNS is what Amazon SNS accepts for HTTP/S endpoints: delays from 1
	// to 3,600 whole seconds, up to 100 retries within a total of 3,600 s, the
	// first four backoff functions, no choice of jitter, and the content types
	// that are allowed unless raw message delivery is on.
	ProfileSNS
	// ProfileSNSRaw is ProfileSNS for a subscription with raw message delivery,
	// for which more content types are allowed.
	ProfileSNSRaw
)

var profileNames = []string{"queue", "sns", "sns-raw"}

// String returns the name of the profile: "queue", "sns", "sns-raw".
func (p Profile) String() string { return enumString("Profile", profileNames, p) }

// MarshalText implements [encoding.TextMarshaler].
func (p Profile) MarshalText() ([]byte, error) { return enumText("profile", profileNames, p) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Profile) UnmarshalText(text []byte) error {
	return enumParse("profile", profileNames, text, p)
}

type limits struct {
	minDelay, maxDelay time.Duration
	retries            int
	total              time.Duration
	backoffs           []string // a prefix of backoffNames
	contentTypes       []string // sorted; nil: any media type
	queue              bool     // what the SNS format does not have: fractions of seconds, jitter, a policy for throttling
}

func (p Profile) limits() limits {
	if p == ProfileQueue {
		return limits{
			maxDelay: math.MaxInt64, retries: forever, total: math.MaxInt64,
			backoffs: backoffNames, queue: true,
		}
	}
	l := limits{
		minDelay: time.Second, maxDelay: time.Hour, retries: 100, total: time.Hour,
		backoffs: backoffNames[:Exponential+1], contentTypes: contentTypes,
	}
	if p == ProfileSNSRaw {
		l.contentTypes = rawContentTypes
	}
	return l
}

// Validate checks p against the limits of [ProfileQueue], which are those for
// jobs. The error joins one [Fault] for each thing that is wrong, with the
// field, its value and the range. The zero Policy is valid.
func (p Policy) Validate() error { return ProfileQueue.Validate(p) }

// Validate checks p as [Policy.Validate] does, against the limits of this
// profile.
func (p Profile) Validate(pol Policy) error {
	var faults []*Fault
	all := p.limits().check(pol, textGo)
	if len(all) == 0 {
		all = pol.checkHaste()
	}
	for _, v := range all {
		faults = append(faults, &Fault{Path: v.field.goName(), Value: v.field.text(pol, textGo), Want: v.want})
	}
	return join(faults)
}

// field is a field of Policy; fieldTotal stands for all of it.
type field int

const (
	fieldMinDelay field = iota
	fieldMaxDelay
	fieldRetries
	fieldNoDelay
	fieldPreBackoff
	fieldPostBackoff
	fieldBackoff
	fieldJitter
	fieldTotal
)

// fieldNames has each field's name in Go and in JSON.
var fieldNames = [...][2]string{
	fieldMinDelay:    {"MinDelay", "minDelayTarget"},
	fieldMaxDelay:    {"MaxDelay", "maxDelayTarget"},
	fieldRetries:     {"Retries", "numRetries"},
	fieldNoDelay:     {"NoDelayRetries", "numNoDelayRetries"},
	fieldPreBackoff:  {"MinDelayRetries", "numMinDelayRetries"},
	fieldPostBackoff: {"MaxDelayRetries", "numMaxDelayRetries"},
	fieldBackoff:     {"Backoff", "backoffFunction"},
	fieldJitter:      {"Jitter", "jitter"},
	fieldTotal:       {"Total", "total"},
}

func (f field) goName() string   { return fieldNames[f][0] }
func (f field) jsonName() string { return fieldNames[f][1] }

// text writes durations: as Go does, or in seconds as the documents do.
type text func(time.Duration) string

func textGo(d time.Duration) string      { return d.String() }
func textSeconds(d time.Duration) string { return string(appendSeconds(nil, d)) }

// text returns the value that p has in this field.
func (f field) text(p Policy, dur text) string {
	switch f {
	case fieldMinDelay:
		return dur(p.MinDelay)
	case fieldMaxDelay:
		return dur(p.MaxDelay)
	case fieldBackoff:
		return p.Backoff.String()
	case fieldJitter:
		return p.Jitter.String()
	case fieldTotal:
		return dur(p.Total())
	default:
		return strconv.Itoa(*f.count(&p))
	}
}

// count returns the place of a field that counts retries.
func (f field) count(p *Policy) *int {
	switch f {
	case fieldNoDelay:
		return &p.NoDelayRetries
	case fieldPreBackoff:
		return &p.MinDelayRetries
	case fieldPostBackoff:
		return &p.MaxDelayRetries
	default:
		return &p.Retries
	}
}

// violation is a field outside its limits, with these limits.
type violation struct {
	field field
	want  string
}

// check returns the violations in p, in the order of the fields. A limit that depends
// on another field is checked only if that field is right.
func (l limits) check(p Policy, dur text) []violation {
	var all []violation
	bad := func(f field, format string, args ...any) {
		all = append(all, violation{f, fmt.Sprintf(format, args...)})
	}
	hi := ""
	if l.maxDelay < math.MaxInt64 {
		hi = dur(l.maxDelay)
	}
	if p.MinDelay < l.minDelay || p.MinDelay > l.maxDelay {
		bad(fieldMinDelay, "%s", between(dur(l.minDelay), hi))
	} else if !l.queue && p.MinDelay%time.Second != 0 {
		bad(fieldMinDelay, "%s, in whole seconds", between(dur(l.minDelay), hi))
	}
	lo, note := l.minDelay, ""
	if p.MinDelay > lo && p.MinDelay <= l.maxDelay {
		lo, note = p.MinDelay, ", from the minimum delay up"
	}
	if p.MaxDelay > l.maxDelay || p.MaxDelay < lo {
		bad(fieldMaxDelay, "%s%s", between(dur(lo), hi), note)
	} else if !l.queue && p.MaxDelay%time.Second != 0 {
		bad(fieldMaxDelay, "%s%s, in whole seconds", between(dur(lo), hi), note)
	}
	all = append(all, l.checkCounts(p)...)
	if int(p.Backoff) >= len(l.backoffs) {
		bad(fieldBackoff, "%s", oneOf(l.backoffs))
	}
	if int(p.Jitter) >= len(jitterNames) {
		bad(fieldJitter, "%s", oneOf(jitterNames))
	} else if !l.queue && p.Jitter != EqualJitter {
		bad(fieldJitter, "cannot be chosen in this profile")
	}
	if len(all) == 0 && l.total < math.MaxInt64 && p.Total() > l.total {
		bad(fieldTotal, "the sum of all delays must be at most %s", dur(l.total))
	}
	return all
}

// hasty reports whether a policy within its limits has retries that were hardly meant to be
// made without delay. Older builds took it.
func (p Policy) hasty() bool { return p.Retries > p.NoDelayRetries && p.MaxDelay <= 0 }

// explicit returns a policy that makes the retries of a hasty one as it does, and says so:
// all are in the immediate phase.
func (p Policy) explicit() Policy {
	p.NoDelayRetries, p.MinDelayRetries, p.MaxDelayRetries = p.Retries, 0, 0
	return p
}

// checkHaste returns what is wrong with a policy within its limits that is hasty.
func (p Policy) checkHaste() []violation {
	if !p.hasty() {
		return nil
	}
	return []violation{{fieldMaxDelay, fmt.Sprintf(
		"must be above 0, or %d retries are made at once: policy.Retries(%d) has delays that double from 15s; if none are meant, set NoDelayRetries to %d",
		p.Retries, p.Retries, p.Retries)}}
}

func (l limits) checkCounts(p Policy) []violation {
	var all []violation
	left, note := p.Retries, ", what is left of the retries"
	if left < 0 || left > l.retries {
		all = append(all, violation{fieldRetries, between("0", strconv.Itoa(l.retries))})
		left, note = l.retries, ""
	}
	for f := fieldNoDelay; f <= fieldPostBackoff; f++ {
		most, why := left, note
		if l.queue && f != fieldPostBackoff { // Retries ends the phase
			most, why = l.retries, ""
		}
		if n := *f.count(&p); n < 0 || n > most {
			all = append(all, violation{f, between("0", strconv.Itoa(most)) + why})
		}
		if note != "" {
			left -= min(max(0, *f.count(&p)), left)
		}
	}
	return all
}

func wholeNumber(lo, hi string) string {
	return "must be a whole number " + strings.TrimPrefix(between(lo, hi), "must be ")
}

func between(lo, hi string) string {
	if hi == "" {
		return "must be at least " + lo
	}
	return "must be between " + lo + " and " + hi
}
