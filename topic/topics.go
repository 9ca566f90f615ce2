package topic

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/remember"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/webhook"
)

// Queues is what [errand.WorkerOptions].Queues needs for publications to more than 1,000
// subscriptions, beside [webhook.Queues] for the deliveries: a topic is the queue "topic/"
// followed by its name.
const Queues = "topic/*"

// The classes of entries. All but the tokens are of the family of their topic, so that a
// publication sees that one has changed.
const (
	classTopic        = "topic"               // by name
	classCount        = "topic-count"         // by name: how many subscriptions it has
	classSubscription = "subscription"        // by ID
	classTarget       = "subscription-target" // by topic and target: the ID
	classTokens       = "subscription-tokens" // by ID
)

// Options configure [Topics]. Nil and the zero value mean defaults.
type Options struct {
	// ConfirmURL is where [Topics.ConfirmHandler] is mounted, as receivers see it: an
	// absolute URL, without user and fragment. If empty, no subscription can be in SNS
	// mode.
	ConfirmURL string
	// ARN returns the name of a resource in messages of SNS mode: resource is "topic" or
	// "subscription", and name the name of the topic or the ID of the subscription. It must
	// return the same for the same in all processes. If nil, "errand:topic:NAME" and
	// "errand:subscription:ID".
	ARN func(resource, name string) string
	// StatusLog receives a line for each attempt of a delivery to an endpoint, with the
	// fields that SNS has in its log of the delivery status: level Info for one that went
	// well, else Warn. If nil, no line is written.
	StatusLog *slog.Logger
	// Logger receives a line when the delivery to one subscription is refused, when
	// [Topics.Declare] adds or changes a topic, and when [Topics.Subscribe] returns one
	// that is there and has more than was asked for. If nil, slog.Default.
	Logger *slog.Logger
}

// Topics keeps the topics and subscriptions of a queue, and publishes messages. It is safe
// for concurrent use.
type Topics struct {
	queue    *errand.Queue
	door     door.Topics[errand.NewJob]
	webhooks *webhook.Webhooks
	opts     Options // with defaults
	cache    cache
	// What was read of subscriptions and their topics for deliveries last, and the tokens that end
	// subscriptions.
	subscriptionsRead remember.Entries[Subscription]
	topicsRead        remember.Entries[Topic]
	unsubscribes      remember.Entries[string]
	// changing holds one value while entries are changed: callers in this process take
	// turns, so that none of them has to try again because of another.
	changing chan struct{}
	tx       *sql.Tx // that all is inside of; nil: none
}

// inside returns t as it is inside tx. It remembers nothing of what t does, and t nothing of what it
// does: tx may not commit. Its callers take no turns with those of t: they keep others from
// writing anyway, and a turn that waits for them would be waited for.
func (t *Topics) inside(tx *sql.Tx) (*Topics, error) {
	in, err := door.TopicsTx[errand.NewJob](t.queue, tx)
	if err != nil {
		return nil, err
	}
	return &Topics{queue: t.queue, door: in, webhooks: t.webhooks, opts: t.opts, changing: make(chan struct{}, 1), tx: tx}, nil
}

// New returns the topics of a queue. It starts nothing. webhooks are those of the same
// queue; nil is for programs that only publish, or whose subscriptions are to kinds only.
// Calls that need an endpoint then return an [errand.FieldError] for webhooks, and write
// nothing. New returns an [errand.FieldError] for each fault of the options, and
// [errand.ErrUnsupportedDB] if the queue's store keeps no messages.
func New(q *errand.Queue, webhooks *webhook.Webhooks, o *Options) (*Topics, error) {
	if q == nil {
		return nil, &errand.FieldError{Field: "queue", Limit: "must not be nil"}
	}
	opts := *cmp.Or(o, &Options{})
	if !isBase(opts.ConfirmURL) {
		return nil, &errand.FieldError{Field: "confirm_url", Value: hideUser(opts.ConfirmURL), Limit: "must be an absolute URL of http or https, without user and fragment"}
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.ARN == nil {
		opts.ARN = func(resource, name string) string { return "errand:" + resource + ":" + name }
	}
	opened, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	return &Topics{queue: q, door: opened, webhooks: webhooks, opts: opts, changing: make(chan struct{}, 1)}, nil
}

// now is the time that stored times are compared with. Receivers get the wall clock, see wall.
func (t *Topics) now() time.Time { return t.queue.Clock().Now }

// wall is the time that receivers are told.
func wall() time.Time { return time.Now() }

func isBase(s string) bool {
	if s == "" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.Fragment == ""
}

// hideUser returns a URL without its user and password.
func hideUser(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	begin, _, ok := strings.Cut(s[:at], "//")
	if !ok {
		return "..." + s[at:]
	}
	return begin + "//..." + s[at:]
}

// Handle registers the handlers of deliveries, of confirmations, and of publications to
// many subscriptions on a worker. Its Queues must have [Queues] and [webhook.Queues].
// A worker without them makes no delivery. The deliveries of
// [webhook.Webhooks.Send] need [webhook.Webhooks.Handle] too. Handle panics as
// [errand.Handle] does. The kinds that are subscribed have handlers of
// the application.
func (t *Topics) Handle(w *errand.Worker) {
	errand.Handle(w, t.fanOut, errand.HandlerOptions{Policy: policy.Forever(time.Minute)})
	errand.Handle(w, t.deliverRefused, errand.HandlerOptions{Policy: policy.Forever(time.Minute)})
	if t.webhooks == nil {
		return
	}
	errand.Handle(w, t.deliver, t.webhooks.HandlerOptions())
	errand.Handle(w, t.confirm, t.webhooks.HandlerOptions())
}

// mostTries is how often what is based on something that has changed meanwhile is tried.
const mostTries = 20

// change writes the entries that fn returns, and calls it again if what it has read was
// changed meanwhile. fn returns no entries if there is nothing to write.
func (t *Topics) change(ctx context.Context, fn func() ([]storage.Entry, error)) error {
	select {
	case t.changing <- struct{}{}:
		defer func() { <-t.changing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	for range mostTries {
		var entries []storage.Entry
		if entries, err = fn(); err != nil || len(entries) == 0 {
			return err
		}
		if _, err = t.door.PutEntries(ctx, entries); !errors.Is(err, errand.ErrStale) {
			return err
		}
	}
	return err
}
