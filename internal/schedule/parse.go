package schedule

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Limits of a spec.
const (
	MaxSpec  = 256                // bytes of a spec
	MaxZone  = 64                 // bytes of the name of a zone
	MinEvery = time.Second        // the shortest interval of @every
	MaxEvery = 87_600 * time.Hour // the longest, some ten years

	maxItems = 60   // items of a list
	maxYear  = 9999 // the year of the last tick there is
)

// Texts of faults.
const (
	fieldList = "five fields (minute, hour, day of month, month, day of week), or six with the second first"
	wantEvery = "must be whole seconds, from 1s to 87600h"
	wantZone  = "must be the name of a zone of the IANA time zone database, such as Europe/Berlin, or empty for UTC"
	someZone  = "Europe/Berlin" // that is in each database
	noZones   = "; if it is one, this machine lacks the database: import time/tzdata, or build with -tags timetzdata"
)

// fieldRule describes the values of one field of a spec.
type fieldRule struct {
	name     string
	min, max int
	names    string // of the values from min on, three letters each
	question bool   // ? may stand for *
}

var fieldRules = []fieldRule{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31, question: true},
	{name: "month", min: 1, max: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec"},
	{name: "day of week", max: 6, names: "sunmontuewedthufrisat", question: true},
}

var descriptors = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse parses a spec in the zone of this name; an empty zone is UTC. An error has a
// [Fault] for the spec, the zone, or both, see [Faults].
//
// Parse takes little time and memory for any input.
func Parse(spec, zone string) (*Spec, error) {
	loc, errZone := parseZone(zone)
	s, errSpec := parseSpec(spec, loc)
	if errSpec != nil || errZone != nil {
		return nil, errors.Join(errSpec, errZone)
	}
	return s, nil
}

func parseZone(zone string) (*time.Location, error) {
	fault := func(limit string) (*time.Location, error) { return nil, &Fault{"zone", zone, limit} }
	switch {
	case len(zone) > MaxZone:
		return fault("must have at most " + strconv.Itoa(MaxZone) + " bytes")
	case zone == "Local":
		return fault("must be a name: which zone Local is depends on the process")
	case strings.ContainsFunc(zone, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_+-/", r)
	}):
		return fault(wantZone)
	}
	loc, err := time.LoadLocation(zone)
	if err == nil {
		return loc, nil
	}
	if _, err := time.LoadLocation(someZone); err == nil {
		return fault(wantZone)
	}
	return fault(wantZone + noZones)
}

func parseSpec(spec string, zone *time.Location) (*Spec, error) {
	fault := func(limit string) (*Spec, error) { return nil, &Fault{"spec", spec, limit} }
	if len(spec) > MaxSpec {
		return fault("must have at most " + strconv.Itoa(MaxSpec) + " bytes")
	}
	if strings.ContainsFunc(spec, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) {
		return fault("must be printable ASCII")
	}
	fields := strings.Fields(spec)
	s := &Spec{spec: strings.Join(fields, " "), zone: zone}
	var limit string
	switch {
	case len(fields) == 0:
		limit = "must have " + fieldList
	case strings.Contains(strings.ToUpper(fields[0]), "TZ="):
		limit = "zone " + quote(fields[0]) + ": must be given apart from the spec"
	case fields[0] == "@every":
		s.ticks, limit = parseEvery(fields)
	case fields[0][0] == '@':
		s.ticks, limit = parseDescriptor(fields, zone)
	default:
		s.ticks, limit = parseFields(fields, zone)
	}
	if limit != "" {
		return fault(limit)
	}
	return s, nil
}

func parseEvery(fields []string) (ticker, string) {
	if len(fields) != 2 {
		return nil, "@every: must be followed by one duration, such as 90s or 1h30m"
	}
	d, err := time.ParseDuration(fields[1])
	if err != nil || d < MinEvery || d > MaxEvery || d%time.Second != 0 {
		return nil, "@every " + quote(fields[1]) + ": " + wantEvery
	}
	return every(d / time.Second), ""
}

func parseDescriptor(fields []string, zone *time.Location) (ticker, string) {
	if len(fields) == 1 {
		for _, d := range descriptors {
			if fields[0] == d {
				return fromLibrary(d, d == "@hourly", zone)
			}
		}
	}
	return nil, "must be @every with a duration, or one of " + strings.Join(descriptors, ", ")
}

func parseFields(fields []string, zone *time.Location) (ticker, string) {
	rules := fieldRules
	if len(fields) == len(rules)-1 {
		rules = rules[1:]
	}
	if len(fields) != len(rules) {
		return nil, "has " + strconv.Itoa(len(fields)) + " fields: must have " + fieldList
	}
	for i, rule := range rules {
		if limit := rule.check(fields[i]); limit != "" {
			return nil, rule.name + " " + limit
		}
	}
	wild := strings.ContainsAny(fields[len(fields)-4], "*/")
	return fromLibrary(strings.Join(fields, " "), wild, zone)
}

// fromLibrary parses, by the library, a spec whose numbers are within bounds.
func fromLibrary(spec string, wild bool, zone *time.Location) (ticker, string) {
	parsed, err := parser.Parse(spec)
	if err != nil {
		return nil, err.Error() // it refuses nothing that was let through
	}
	p := parsed.(*cron.SpecSchedule)
	// The library marks a * by the highest bit. A field with one has all values.
	const star = 1 << 63
	c := calendar{
		second: p.Second &^ star, minute: p.Minute &^ star, hour: p.Hour &^ star,
		dom: p.Dom &^ star, month: p.Month &^ star, dow: p.Dow &^ star,
		either: p.Dom&star == 0 && p.Dow&star == 0,
	}
	if !c.possible() {
		return nil, "day of month: never comes in the months given"
	}
	if wild {
		return &elapsed{c, zone}, ""
	}
	return &fixed{c, zone}, ""
}

// possible reports whether some day of some year matches.
func (c *calendar) possible() bool {
	if c.either {
		return true // a weekday comes in every month
	}
	const leapYear = 2000
	for m := time.January; m <= time.December; m++ {
		if has(c.month, int(m)) && nextBit(c.dom, 1) <= daysIn(leapYear, m) {
			return true // the one of dom and dow that is not * decides alone
		}
	}
	return false
}

// check returns what is wrong with a field, or nothing. A field that it accepts is
// neither expanded beyond the library's bits nor read in another way by it.
func (r fieldRule) check(field string) string {
	items := strings.Split(field, ",")
	if len(items) > maxItems {
		return quote(field) + ": must have at most " + strconv.Itoa(maxItems) + " items"
	}
	for _, item := range items {
		if limit := r.checkItem(item); limit != "" {
			return limit
		}
	}
	return ""
}

func (r fieldRule) checkItem(item string) string {
	values, step, stepped := strings.Cut(item, "/")
	if stepped {
		// A step as large as the field is pointless but common: */60.
		if n, ok := number(step); !ok || n < 1 || n > r.max-r.min+1 {
			return quote(item) + ": step must be between 1 and " + strconv.Itoa(r.max-r.min+1)
		}
	}
	if values == "*" || values == "?" && r.question {
		return ""
	}
	from, to, ranged := strings.Cut(values, "-")
	low, ok := r.value(from)
	if !ok {
		return quote(item) + ": must be " + r.want()
	}
	if ranged {
		high, ok := r.value(to)
		if !ok {
			return quote(item) + ": must be " + r.want()
		}
		if low > high {
			return quote(item) + ": must not begin after its end"
		}
	}
	return ""
}

func (r fieldRule) value(s string) (int, bool) {
	if len(s) == 3 {
		if i := strings.Index(r.names, strings.ToLower(s)); i >= 0 && i%3 == 0 {
			return r.min + i/3, true
		}
	}
	n, ok := number(s)
	return n, ok && n >= r.min && n <= r.max
}

func (r fieldRule) want() string {
	s := "between " + strconv.Itoa(r.min) + " and " + strconv.Itoa(r.max)
	if r.names != "" {
		s += ", or " + r.names[:3] + " to " + r.names[len(r.names)-3:]
	}
	return s
}

// number reads one or two digits.
func number(s string) (int, bool) {
	if len(s) == 0 || len(s) > 2 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
