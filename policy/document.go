package policy

import (
	"encoding/json"
	"math"
	"mime"
	"slices"
	"strconv"
	"strings"
)

// Document is a delivery policy as SNS attaches it to a subscription. A job queue
// attaches it to a kind or a single job. Each of its sections may be absent; see
// [Document.Or].
//
//	{"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, ...},
//	 "throttlePolicy": {"maxReceivesPerSecond": 10},
//	 "requestPolicy": {"headerContentType": "application/json"}}
//
// Copies share the values behind the pointers; do not change those.
type Document struct {
	// Retry is the retry policy.
	Retry *Policy `json:"healthyRetryPolicy,omitempty"`
	// ThrottledRetry replaces Retry for errors of class [Throttled]. It is not part
	// of the SNS format, only of profile queue. The precedent are the SNS endpoints
	// of Firehose: their throttling errors follow the policy for customer-managed
	// endpoints.
	ThrottledRetry *Policy `json:"throttledRetryPolicy,omitempty"`
	// Throttle limits the rate of attempts.
	Throttle *Throttle `json:"throttlePolicy,omitempty"`
	// Request configures a delivery over HTTP.
	Request *Request `json:"requestPolicy,omitempty"`
}

// Throttle is the section about the rate of attempts.
type Throttle struct {
	// MaxReceivesPerSecond is the rate, as an average and not a hard limit.
	// If zero, there is no throttling.
	MaxReceivesPerSecond int `json:"maxReceivesPerSecond,omitempty"`
}

// Request is the section about deliveries over HTTP.
type Request struct {
	// ContentType is the Content-Type header, see [Profile.ContentType].
	// If empty, DefaultContentType.
	ContentType string `json:"headerContentType,omitempty"`
}

// DefaultContentType is the content type of a request section that names none.
const DefaultContentType = "text/plain; charset=UTF-8"

var contentTypes = []string{"application/json", "text/plain"}

var rawContentTypes = []string{
	"application/atom+xml", "application/json", "application/octet-stream", "application/soap+xml",
	"application/x-www-form-urlencoded", "application/xhtml+xml", "application/xml",
	"text/css", "text/csv", "text/html", "text/plain", "text/xml",
}

// SystemDefault returns the sections that hold if neither topic nor subscription has
// them: 3 retries after 20 s each, no throttling, plain text.
func SystemDefault() Document {
	retry := SNSHTTP()
	return Document{Retry: &retry, Throttle: &Throttle{}, Request: &Request{ContentType: DefaultContentType}}
}

// Or returns d with each section that d lacks taken from fallback. Sections are
// never mixed: a member that is missing in a section has the system default, not the
// value of the fallback. So the policy in effect for a job is
//
//	job.Or(kind).Or(queue).Or(system)
//
// A queue's document can disable those of job and kind: see [Topic.Effective], with
// job.Or(kind) as the subscription's. ThrottledRetry is taken from fallback only if
// Retry is: a document with a Retry of its own decides about both.
func (d Document) Or(fallback Document) Document {
	if d.Retry == nil {
		d.Retry = fallback.Retry
		if d.ThrottledRetry == nil {
			d.ThrottledRetry = fallback.ThrottledRetry
		}
	}
	if d.Throttle == nil {
		d.Throttle = fallback.Throttle
	}
	if d.Request == nil {
		d.Request = fallback.Request
	}
	return d
}

// For returns the retry policy for an error of this class: the zero Policy for
// Permanent, ThrottledRetry for Throttled if there is one, else Retry, also for
// Unavailable. If Retry is absent too, it returns that of [SystemDefault].
func (d Document) For(class Class) Policy {
	switch {
	case class == Permanent:
		return Policy{}
	case class == Throttled && d.ThrottledRetry != nil:
		return *d.ThrottledRetry
	case d.Retry != nil:
		return *d.Retry
	default:
		return SNSHTTP()
	}
}

// Topic is a delivery policy as SNS attaches it to a topic. A job queue attaches it to
// a queue. Its sections are the defaults for all subscriptions:
//
//	{"http": {"defaultHealthyRetryPolicy": {...}, "defaultThrottlePolicy": {...},
//	          "defaultRequestPolicy": {...}, "disableSubscriptionOverrides": false}}
type Topic struct {
	Document
	// DisableSubscriptionOverrides makes sections of subscriptions have no effect.
	DisableSubscriptionOverrides bool
}

// Effective returns the document in effect for a subscription. Each section is the
// subscription's if overrides are not disabled, else the topic's, else that of system,
// which usually is [SystemDefault]. [Topic.Sources] returns which of them it is.
func (t Topic) Effective(subscription, system Document) Document {
	if t.DisableSubscriptionOverrides {
		subscription = Document{}
	}
	return subscription.Or(t.Document).Or(system)
}

// ParseDocument reads a document of a subscription by the limits of a profile,
// its sections as [ParsePolicy] does. Null is absent. The members
// sicklyRetryPolicy and guaranteed, which SNS returns but does not use, are
// dropped. All faults are reported, each as a [Fault] whose path begins at the
// top, such as "healthyRetryPolicy.numRetries".
//
// [json.Marshal] writes the document in a normal form: reading that form again
// returns an equal document.
func ParseDocument(data []byte, profile Profile) (Document, error) {
	return parse(data, profile, (*reader).document)
}

// ParseTopic reads a document of a topic, otherwise as ParseDocument does.
func ParseTopic(data []byte, profile Profile) (Topic, error) {
	return parse(data, profile, (*reader).topic)
}

// Parse reads any of the three forms, which differ in their members: a document of a
// topic; one of a subscription, which becomes a topic that disables nothing; and a
// retry section alone, which becomes the only section. Faults have the paths of the
// form that was read.
func Parse(data []byte, profile Profile) (Topic, error) {
	return parse(data, profile, (*reader).any)
}

func (r *reader) any(path string, raw []byte) Topic {
	// Text that is no object is refused by the readers below.
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members)
	if _, ok := members["http"]; ok {
		return r.topic(path, raw)
	}
	for f := fieldMinDelay; f < fieldTotal; f++ {
		if _, ok := members[f.jsonName()]; ok {
			p := r.policy(path, raw)
			return Topic{Document: Document{Retry: &p}}
		}
	}
	return Topic{Document: r.document(path, raw)}
}

// UnmarshalJSON is [ParseDocument] with [ProfileQueue], for its sections as [Policy.UnmarshalJSON].
func (d *Document) UnmarshalJSON(data []byte) error { return unmarshal(data, d, (*reader).document) }

// UnmarshalJSON is [Parse] with [ProfileQueue], for its sections as [Policy.UnmarshalJSON].
func (t *Topic) UnmarshalJSON(data []byte) error { return unmarshal(data, t, (*reader).any) }

// MarshalJSON writes the document in its normal form.
func (t Topic) MarshalJSON() ([]byte, error) {
	type http struct {
		Retry          *Policy   `json:"defaultHealthyRetryPolicy,omitempty"`
		ThrottledRetry *Policy   `json:"defaultThrottledRetryPolicy,omitempty"`
		Throttle       *Throttle `json:"defaultThrottlePolicy,omitempty"`
		Request        *Request  `json:"defaultRequestPolicy,omitempty"`
		Disable        bool      `json:"disableSubscriptionOverrides"`
	}
	return json.Marshal(map[string]http{
		"http": {t.Retry, t.ThrottledRetry, t.Throttle, t.Request, t.DisableSubscriptionOverrides},
	})
}

func (r *reader) document(path string, raw []byte) (d Document) {
	r.object(path, raw, func(inner, name string, value []byte) bool {
		return r.section(&d, inner, name, value)
	})
	return d
}

func (r *reader) topic(path string, raw []byte) (t Topic) {
	r.object(path, raw, func(inner, name string, value []byte) bool {
		if name != "http" {
			return false
		}
		if value == nil {
			return true
		}
		r.object(inner, value, func(inner, name string, value []byte) bool {
			bare, isDefault := strings.CutPrefix(name, "default")
			switch {
			case isDefault && bare != "" && bare[0] >= 'A' && bare[0] <= 'Z':
				return r.section(&t.Document, inner, strings.ToLower(bare[:1])+bare[1:], value)
			case name == "disableSubscriptionOverrides":
				if value != nil && json.Unmarshal(value, &t.DisableSubscriptionOverrides) != nil {
					r.fault(inner, compact(value), "must be true or false")
				}
				return true
			}
			return isIgnored(name)
		})
		return true
	})
	return t
}

// isIgnored reports whether SNS returns such a member without using it.
func isIgnored(name string) bool { return name == "sicklyRetryPolicy" || name == "guaranteed" }

// section reads a section, by its name in the document of a subscription.
func (r *reader) section(d *Document, path, name string, value []byte) (known bool) {
	switch {
	case isIgnored(name):
	case name == "throttledRetryPolicy" && !r.profile.limits().queue:
		return false
	case !slices.Contains([]string{"healthyRetryPolicy", "throttledRetryPolicy", "throttlePolicy", "requestPolicy"}, name):
		return false
	case value == nil:
	case name == "healthyRetryPolicy":
		p := r.policy(path, value)
		d.Retry = &p
	case name == "throttledRetryPolicy":
		p := r.policy(path, value)
		d.ThrottledRetry = &p
	case name == "throttlePolicy":
		d.Throttle = r.throttle(path, value)
	case name == "requestPolicy":
		d.Request = r.request(path, value)
	}
	return true
}

func (r *reader) throttle(path string, raw []byte) *Throttle {
	var t Throttle
	r.object(path, raw, func(inner, name string, value []byte) bool {
		if name != "maxReceivesPerSecond" {
			return false
		}
		if value != nil {
			n, err := strconv.ParseInt(string(value), 10, 32)
			if err != nil || n < 1 {
				r.fault(inner, compact(value), wholeNumber("1", strconv.Itoa(math.MaxInt32)))
			}
			t.MaxReceivesPerSecond = int(n)
		}
		return true
	})
	return &t
}

func (r *reader) request(path string, raw []byte) *Request {
	q := Request{ContentType: DefaultContentType}
	r.object(path, raw, func(inner, name string, value []byte) bool {
		if name != "headerContentType" {
			return false
		}
		if value != nil {
			var s string
			if json.Unmarshal(value, &s) == nil {
				s, _ = r.profile.ContentType(s)
			}
			if s == "" {
				r.fault(inner, compact(value), r.profile.wantContentType())
			}
			q.ContentType = s
		}
		return true
	})
	return &q
}

// maxContentType is how long a content type may be, in bytes.
const maxContentType = 256

// ContentType returns a content type in its usual form. ok reports whether the profile allows
// it: [ProfileQueue] any media type of at most 256 bytes, such as application/cloudevents+json,
// with parameters; the profiles of Amazon SNS those of its lists, with at most a charset.
func (p Profile) ContentType(s string) (normal string, ok bool) {
	t, params, err := mime.ParseMediaType(s)
	if err != nil || len(s) > maxContentType {
		return "", false
	}
	if allowed := p.limits().contentTypes; allowed != nil {
		_, charset := params["charset"]
		_, ok = slices.BinarySearch(allowed, t)
		ok = ok && (len(params) == 0 || len(params) == 1 && charset)
	} else {
		ok = strings.Contains(t, "/") && !strings.Contains(t, "*") // text/* is a range of them
	}
	if normal = mime.FormatMediaType(t, params); !ok || normal == "" {
		return "", false
	}
	return normal, true
}

// wantContentType returns what ContentType allows, for a [Fault].
func (p Profile) wantContentType() string {
	if allowed := p.limits().contentTypes; allowed != nil {
		return oneOf(allowed) + "; a charset may follow"
	}
	return "must be a media type, such as application/json, of at most " + strconv.Itoa(maxContentType) + " bytes"
}
