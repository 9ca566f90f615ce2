package topic

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/topic/filter"
)

const (
	maxName     = 100 // of a topic
	maxID       = 50  // of a subscription, whose tag has 64
	maxKind     = 128
	maxKey      = 128 // groups and dedup IDs
	maxMsgID    = 64
	maxEndpoint = 64
	maxThrottle = 10_000 // a second: that of a queue
	maxTag      = 64
	mostTags    = 5 // of a message's own
)

// faults collects what is wrong with the input of one call.
type faults struct {
	place string // goes before the names of fields
	list  []error
}

func (f *faults) field(field string, value any, limit string) {
	f.list = append(f.list, &errand.FieldError{Field: f.place + field, Value: value, Limit: limit})
}

func (f *faults) err() error { return errors.Join(f.list...) }

// names returns the names of the fields.
func (f *faults) names() (names []string) {
	for _, err := range f.list {
		if fault, ok := errors.AsType[*errand.FieldError](err); ok {
			names = append(names, fault.Field)
		}
	}
	return names
}

// notThere says that input names something that is not there.
func notThere(field, value, what string) error {
	return &errand.FieldError{Field: field, Value: value, Limit: "must be " + what, Err: errand.ErrNotFound}
}

// noWebhooks refuses what needs the endpoint of a subscription.
func noWebhooks(s *Subscription) error {
	return &errand.FieldError{Field: "webhooks", Limit: fmt.Sprintf("must not be nil in New: subscription %q is to an endpoint", s.ID)}
}

func (f *faults) name(field, name string) {
	if !isName(name, maxName, "._-") {
		f.field(field, name, "must match [A-Za-z0-9][A-Za-z0-9._-]{0,99}")
	}
}

func (f *faults) id(field, id string) {
	if !isName(id, maxID, "._-") {
		f.field(field, id, "must match [A-Za-z0-9][A-Za-z0-9._-]{0,49}")
	}
}

// kind checks the name of a kind or a queue.
func (f *faults) kind(field, name string) {
	if !isName(name, maxKind, "._:/-") {
		f.field(field, name, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
	}
}

// isName reports whether s begins with a letter or digit of ASCII, and has nothing else
// but others.
func isName(s string, most int, others string) bool {
	if s == "" || len(s) > most || strings.IndexByte(others, s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// key checks a group or the like.
func (f *faults) key(field, key string) {
	if len(key) > maxKey || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		f.field(field, key, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxKey))
	}
}

// tags checks the tags of a message. Those that begin as that of a subscription or a message are
// not for others.
func (f *faults) tags(field string, tags []string) {
	if len(tags) > mostTags {
		f.field(field, len(tags), fmt.Sprintf("must be at most %d", mostTags))
	}
	for i, tag := range tags {
		place := fmt.Sprintf("%s[%d]", field, i)
		if !isName(tag, maxTag, "._:/-") {
			f.field(place, tag, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
		}
		for _, own := range []string{Tag(""), storage.MessageTag("")} {
			if strings.HasPrefix(tag, own) {
				f.field(place, tag, fmt.Sprintf("must not begin with %q", own))
			}
		}
	}
}

// policy checks a delivery policy, which may be nil. Its content type is one that the profile
// allows.
func (f *faults) policy(field string, p policy.Delivery, request *policy.Request, profile policy.Profile) {
	err := p.Validate()
	for _, fault := range policy.Faults(err) {
		f.field(field+"."+fault.Path, fault.Value, fault.Want)
	}
	if err != nil && len(policy.Faults(err)) == 0 {
		f.list = append(f.list, &errand.FieldError{Field: f.place + field, Value: "a policy", Limit: "must be valid", Err: err})
	}
	if d := p.Delivery().Document; err == nil && d.Throttle != nil && d.Throttle.MaxReceivesPerSecond > maxThrottle {
		f.field(field+".Throttle.MaxReceivesPerSecond", d.Throttle.MaxReceivesPerSecond, fmt.Sprintf("must be at most %d", maxThrottle))
	}
	if err != nil || request == nil || request.ContentType == "" {
		return
	}
	if _, ok := profile.ContentType(request.ContentType); !ok {
		want := "must be application/json or text/plain without raw delivery, and of a topic"
		if profile == policy.ProfileSNSRaw {
			want = "must be one that Amazon SNS allows for raw delivery"
		}
		f.field(field+".Request.ContentType", request.ContentType, want)
	}
}

// position is a fault of a filter policy that says no more than where it is: the rest is in
// the [errand.FieldError] around it.
type position struct{ fault *filter.Fault }

func (p position) Error() string { return fmt.Sprintf("at byte %d", p.fault.Offset) }
func (p position) Unwrap() error { return p.fault }

// filter checks a filter policy and returns it. The path of what is wrong and its position
// are named.
func (f *faults) filter(field string, scope filter.Scope, doc []byte) *filter.Policy {
	if len(doc) == 0 {
		return &filter.Policy{}
	}
	if len(doc) > maxFilter {
		f.field(field, fmt.Sprintf("%d bytes", len(doc)), fmt.Sprintf("must be at most %d bytes", maxFilter))
		return nil
	}
	p, err := filter.Parse(scope, doc)
	if err == nil {
		return p
	}
	for _, fault := range filter.Faults(err) {
		var value any
		switch {
		case fault.Value != "":
			value = fault.Value
		case fault.Path == "$": // it is no JSON
			value = string(doc)
		}
		f.list = append(f.list, &errand.FieldError{
			Field: f.place + field + strings.TrimPrefix(fault.Path, "$"), Value: value, Limit: fault.Want, Err: position{fault},
		})
	}
	if len(filter.Faults(err)) == 0 {
		f.list = append(f.list, &errand.FieldError{Field: f.place + field, Value: "a filter policy", Limit: "must be valid", Err: err})
	}
	return nil
}
