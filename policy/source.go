package policy

// Source is where a section of the document in effect comes from.
type Source uint8

const (
	// FromSystem is for sections that neither subscription nor topic has.
	FromSystem Source = iota
	// FromTopic is for sections of the topic's document.
	FromTopic
	// FromSubscription is for sections of the subscription's document.
	FromSubscription
)

var sourceNames = []string{"system", "topic", "subscription"}

// String returns the name of the source: "system", "topic", "subscription".
func (s Source) String() string { return enumString("Source", sourceNames, s) }

// MarshalText implements [encoding.TextMarshaler].
func (s Source) MarshalText() ([]byte, error) { return enumText("source", sourceNames, s) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Source) UnmarshalText(text []byte) error { return enumParse("source", sourceNames, text, s) }

// Sources has the source of each section of a document in effect.
type Sources struct {
	Retry          Source `json:"healthyRetryPolicy"`
	ThrottledRetry Source `json:"throttledRetryPolicy"`
	Throttle       Source `json:"throttlePolicy"`
	Request        Source `json:"requestPolicy"`
}

// Sources returns where the sections of [Topic.Effective] come from for this
// subscription. A section that neither of the two has is of the system.
func (t Topic) Sources(subscription Document) Sources {
	if t.DisableSubscriptionOverrides {
		subscription = Document{}
	}
	// Effective copies pointers to sections, never sections. So no rule of it is
	// written a second time here.
	effective := t.Effective(subscription, Document{})
	return Sources{
		Retry:          source(effective.Retry, subscription.Retry),
		ThrottledRetry: source(effective.ThrottledRetry, subscription.ThrottledRetry),
		Throttle:       source(effective.Throttle, subscription.Throttle),
		Request:        source(effective.Request, subscription.Request),
	}
}

// source returns the source of a section in effect, nil if only the system can have
// it.
func source[T any](effective, subscription *T) Source {
	switch effective {
	case nil:
		return FromSystem
	case subscription:
		return FromSubscription
	default:
		return FromTopic
	}
}
