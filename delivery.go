package errand

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"unicode"

	"github.com/errandq/errand/policy"
)

// delivery gives what d stands for. A nil pointer counts as nil.
func delivery(d policy.Delivery) (t policy.Topic, ok bool) {
	if isNil(d) {
		return policy.Topic{}, false
	}
	return d.Delivery(), true
}

// policy checks d where the policy of a queue, or of all, can stand.
func (f *faults) policy(field string, d policy.Delivery) {
	if isNil(d) {
		return
	}
	err := d.Validate()
	all := policy.Faults(err)
	if err != nil && len(all) == 0 {
		f.add(&FieldError{Field: field, Value: fmt.Sprintf("%T", d), Limit: "must be valid", Err: err})
	}
	for _, fault := range all {
		f.field(field+"."+snake(fault.Path), fieldValue(d, fault), fault.Want)
	}
}

// override checks d where the policy of a kind or a job can stand, and gives
// its document if it is fine.
func (f *faults) override(field string, d policy.Delivery) policy.Document {
	before := f.n()
	f.policy(field, d)
	t, _ := delivery(d)
	if t.DisableSubscriptionOverrides {
		f.field(field+".disable_subscription_overrides", true, "must be false: only a queue's policy disables those of kinds and jobs")
	}
	if f.n() > before {
		return policy.Document{}
	}
	return t.Document
}

// logDoubts logs what policy.Lint says of a policy that is valid.
func logDoubts(log *slog.Logger, of string, d policy.Delivery) {
	t, _ := delivery(d)
	for _, p := range []struct {
		of     string
		policy *policy.Policy
	}{{of, t.Retry}, {of + ", when throttled", t.ThrottledRetry}} {
		if p.policy == nil {
			continue
		}
		for _, doubt := range p.policy.Lint() {
			log.Warn("errand: doubtful policy", "of", p.of, "doubt", doubt)
		}
	}
}

func (f *faults) rules(field string, rules policy.Rules) {
	for i, r := range rules {
		if r == nil {
			f.field(fmt.Sprintf("%s[%d]", field, i), nil, "must not be nil")
		}
	}
}

// fieldValue gives the value that a fault is about, or else its text.
func fieldValue(d policy.Delivery, fault *policy.Fault) any {
	v := reflect.Indirect(reflect.ValueOf(d))
	for name := range strings.SplitSeq(fault.Path, ".") {
		if v.Kind() != reflect.Struct {
			return fault.Value
		}
		v = reflect.Indirect(v.FieldByName(name))
	}
	if !v.IsValid() {
		return fault.Value
	}
	return v.Interface()
}

// snake turns the name of a Go field into the form that all paths here have.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && name[i-1] != '.' {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// storedPolicy reads the policy that is stored with a job or a schedule.
func (f *faults) storedPolicy(of string, b []byte) *policy.Document {
	if b == nil {
		return nil
	}
	t, err := policy.Parse(b, policy.ProfileQueue)
	if err != nil {
		f.add(fmt.Errorf("errand: policy of %s: %w", of, err))
		return nil
	}
	return &t.Document
}

// complete gives the policy of a queue in which all sections are that can be:
// its own, else those of the options, else the default. A queue that has none
// of its own is under that of the options as if it were.
func complete(queue, options policy.Delivery) policy.Topic {
	retry := policy.Default()
	t, _ := delivery(options)
	t.Document = t.Or(policy.Document{Retry: &retry})
	if own, has := delivery(queue); has {
		own.Document = own.Or(t.Document)
		return own
	}
	return t
}
