package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// documentDefaults has the values of members that a document leaves out: the system
// default of SNS for HTTP/S, 3 retries after 20 s each.
var documentDefaults = Policy{MinDelay: 20 * time.Second, MaxDelay: 20 * time.Second, Retries: 3}

// MarshalJSON writes p as the retry section of an SNS delivery policy:
//
//	{"minDelayTarget":1,"maxDelayTarget":60,"numRetries":50,"numNoDelayRetries":3,
//	 "numMinDelayRetries":2,"numMaxDelayRetries":35,"backoffFunction":"exponential"}
//
// Delays are numbers of seconds, with a fraction if need be. All members are
// written, so that no default of the reader matters; only "jitter", which is
// not part of the SNS format, is left out when it is "equal". This is also how
// a job's own policy is stored.
func (p Policy) MarshalJSON() ([]byte, error) {
	backoff, err := p.Backoff.MarshalText()
	if err != nil {
		return nil, err
	}
	jitter, err := p.Jitter.MarshalText()
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, 256), '{')
	for f := fieldMinDelay; f < fieldTotal; f++ {
		if f == fieldJitter && p.Jitter == EqualJitter {
			continue
		}
		if f > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, f.jsonName()), ':')
		switch f {
		case fieldMinDelay:
			b = appendSeconds(b, p.MinDelay)
		case fieldMaxDelay:
			b = appendSeconds(b, p.MaxDelay)
		case fieldBackoff:
			b = strconv.AppendQuote(b, string(backoff))
		case fieldJitter:
			b = strconv.AppendQuote(b, string(jitter))
		default:
			b = strconv.AppendInt(b, int64(*f.count(&p)), 10)
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON is [ParsePolicy] with [ProfileQueue], but also reads what older builds
// wrote and [Policy.Validate] refuses now: retries outside the immediate phase though all
// delays are 0. It sets NoDelayRetries to Retries then, which says the same and is valid. As
// is usual in encoding/json, null and errors leave p as it is.
func (p *Policy) UnmarshalJSON(data []byte) error { return unmarshal(data, p, (*reader).policy) }

// ParsePolicy reads a retry section, the form that [Policy.MarshalJSON] writes, by the
// limits of a profile. A member that is missing or null has the default of SNS: delays of
// 20 s, 3 retries, all in the backoff phase, "linear"; the jitter is "equal". Profile
// queue also takes delays as Go writes durations ("1.5s"). Members that are unknown or
// given twice are faults, and all faults are reported, each as a [Fault].
func ParsePolicy(data []byte, profile Profile) (Policy, error) {
	return parse(data, profile, (*reader).policy)
}

// policy reads a retry section.
func (r *reader) policy(path string, raw []byte) Policy {
	p, lim := documentDefaults, r.profile.limits()
	var given, wrong [fieldTotal + 1]string // the value as written; what is wrong with its form
	malformed := false
	r.object(path, raw, func(inner, name string, value []byte) bool {
		f := fieldMinDelay
		for f.jsonName() != name {
			if f++; f == fieldTotal || f == fieldJitter && !lim.queue {
				return false
			}
		}
		if value != nil {
			given[f] = string(compact(value))
			if wrong[f] = lim.set(&p, f, value); wrong[f] != "" {
				malformed = true
				lim.neutralize(&p, f)
			}
		}
		return true
	})
	violations := map[field]string{}
	if malformed {
		lim.total = math.MaxInt64
	}
	all := lim.check(p, textSeconds)
	switch {
	case len(all) > 0 || malformed:
	case !r.stored:
		all = p.checkHaste()
	case p.hasty():
		p = p.explicit()
	}
	for _, v := range all {
		violations[v.field] = v.want
	}
	for f := fieldMinDelay; f <= fieldTotal; f++ {
		want, value := cmp.Or(wrong[f], violations[f]), given[f]
		if want == "" {
			continue
		}
		if value == "" {
			value = f.text(p, textSeconds)
			if f != fieldTotal {
				value += " (the default)"
			}
		}
		r.fault(member(path, f.jsonName()), []byte(value), want)
	}
	return p
}

// set sets a field to a value. It returns what is wrong with the form of the value,
// or nothing.
func (l limits) set(p *Policy, f field, value []byte) (wrong string) {
	ok := true
	switch f {
	case fieldMinDelay:
		p.MinDelay, ok = l.seconds(value)
	case fieldMaxDelay:
		p.MaxDelay, ok = l.seconds(value)
	case fieldBackoff:
		if json.Unmarshal(value, &p.Backoff) != nil {
			return oneOf(l.backoffs)
		}
	case fieldJitter:
		if json.Unmarshal(value, &p.Jitter) != nil {
			return oneOf(jitterNames)
		}
	default:
		n, err := strconv.ParseInt(string(value), 10, 32)
		if err != nil {
			return wholeNumber("0", strconv.Itoa(l.retries))
		}
		*f.count(p) = int(n)
	}
	switch {
	case ok:
		return ""
	case l.queue:
		const most = math.MaxInt64 / time.Second
		return fmt.Sprintf(`must be a number of seconds between 0 and %d, or a string like "1.5s"`, most)
	default:
		return "must be a whole number of seconds between " + textSeconds(l.minDelay) + " and " + textSeconds(l.maxDelay)
	}
}

// neutralize sets a field whose value could not be read to a value that no other
// field can conflict with.
func (l limits) neutralize(p *Policy, f field) {
	switch f {
	case fieldMinDelay:
		p.MinDelay = l.minDelay
	case fieldRetries:
		p.Retries = l.retries
	case fieldNoDelay, fieldPreBackoff, fieldPostBackoff:
		*f.count(p) = 0
	}
}

// seconds reads a JSON number of seconds, which is whole unless the profile has
// fractions; if it has, also a string as Go writes durations.
func (l limits) seconds(value []byte) (d time.Duration, ok bool) {
	s := string(value)
	switch {
	case value[0] == '"' && l.queue:
		if json.Unmarshal(value, &s) != nil {
			return 0, false
		}
	case value[0] != '-' && (value[0] < '0' || value[0] > '9'):
		return 0, false
	case strings.ContainsAny(s, "eE"):
		f, err := strconv.ParseFloat(s, 64)
		ns := math.Round(f * 1e9)
		return time.Duration(ns), err == nil && math.Abs(ns) < math.MaxInt64 && (l.queue || f == math.Trunc(f))
	default:
		// Looked at as written, since a Duration ends with nanoseconds.
		if _, frac, _ := strings.Cut(s, "."); strings.Trim(frac, "0") != "" && !l.queue {
			return 0, false
		}
		s += "s"
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// appendSeconds writes d in seconds, exactly, as a JSON number.
func appendSeconds(b []byte, d time.Duration) []byte {
	if d < 0 {
		b = append(b, '-')
	}
	whole, frac := d/time.Second, d%time.Second
	b = strconv.AppendUint(b, abs(whole), 10)
	if frac != 0 {
		b = append(b, strings.TrimRight(fmt.Sprintf(".%09d", abs(frac)), "0")...)
	}
	return b
}

func abs(d time.Duration) uint64 {
	if d < 0 {
		return -uint64(d)
	}
	return uint64(d)
}
