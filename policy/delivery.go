package policy

import (
	"math"
	"strconv"
)

// Delivery is a delivery policy in any form: a [Policy], which stands for a document
// with a retry section alone, a [Document] or a [Topic], each as a value or as a
// pointer.
type Delivery interface {
	// Delivery returns the policy in its most general form. The result shares
	// no memory with the receiver.
	Delivery() Topic
	// Validate checks the policy against the limits of [ProfileQueue]. The error
	// joins one [Fault] for each thing that is wrong.
	Validate() error
}

var _ = []Delivery{Policy{}, Document{}, Topic{}}

// Delivery returns a document whose only section is p.
func (p Policy) Delivery() Topic { return Topic{Document: Document{Retry: &p}} }

// Delivery returns a topic's document with the sections of d, which disables nothing.
func (d Document) Delivery() Topic {
	return Topic{Document: Document{
		Retry: clone(d.Retry), ThrottledRetry: clone(d.ThrottledRetry),
		Throttle: clone(d.Throttle), Request: clone(d.Request),
	}}
}

// Delivery returns a copy.
func (t Topic) Delivery() Topic {
	return Topic{Document: t.Document.Delivery().Document, DisableSubscriptionOverrides: t.DisableSubscriptionOverrides}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// Validate checks all sections against the limits of [ProfileQueue], which are
// those for jobs. Faults have paths of Go fields, such as "Retry.MaxDelay". A
// document that was read with any profile is valid.
func (d Document) Validate() error {
	var faults []*Fault
	retry := func(path string, p *Policy) {
		if p == nil {
			return
		}
		for _, f := range Faults(p.Validate()) {
			faults = append(faults, &Fault{Path: path + "." + f.Path, Value: f.Value, Want: f.Want})
		}
	}
	retry("Retry", d.Retry)
	retry("ThrottledRetry", d.ThrottledRetry)
	if t := d.Throttle; t != nil && (t.MaxReceivesPerSecond < 0 || t.MaxReceivesPerSecond > math.MaxInt32) {
		faults = append(faults, &Fault{
			Path: "Throttle.MaxReceivesPerSecond", Value: strconv.Itoa(t.MaxReceivesPerSecond),
			Want: between("0", strconv.Itoa(math.MaxInt32)),
		})
	}
	if r := d.Request; r != nil && r.ContentType != "" {
		if _, ok := ProfileQueue.ContentType(r.ContentType); !ok {
			faults = append(faults, &Fault{Path: "Request.ContentType", Value: quote(r.ContentType), Want: ProfileQueue.wantContentType()})
		}
	}
	return join(faults)
}
