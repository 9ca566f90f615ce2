package storage

import (
	"context"
	"time"
)

// Topics is implemented by a Store that keeps what is published beside jobs: messages,
// which jobs deliver, and entries, which say to whom. It knows nothing of what is in
// them. Calls that write are transactions as those of [Store] are.
type Topics interface {
	// PutEntries writes entries, or deletes those with Delete, all of them or none; none
	// is named twice. An entry with a Revision of zero must not be there; any other must
	// be there with its Revision. Else PutEntries writes nothing and returns [ErrStale].
	// It returns the Revision that the entries and their families have then: it is higher
	// than any before, also if an entry of this name was deleted. An entry keeps the
	// Family and the CreatedAt that it was first written with. Its UpdatedAt is now, and
	// moves with the clock, see [Timekeeper]: what a Doc says of times to come is best a
	// length from there.
	PutEntries(ctx context.Context, now time.Time, entries []Entry) (revision int64, err error)

	// Entry returns an entry, or [ErrNotFound].
	Entry(ctx context.Context, class, name string) (Entry, error)

	// Entries lists the entries of a class, at most limit of them, sorted by name, those
	// whose name is greater than after. If family is not empty, it lists only those of the
	// family. It returns the revision of the family as of the same moment, zero if family
	// is empty or has never had an entry.
	Entries(ctx context.Context, class, family, after string, limit int) (entries []Entry, revision int64, err error)

	// PublishMessages stores messages and inserts the jobs that deliver them, in order,
	// all in one transaction, and answers for each in the same order. See [Publication].
	// It returns [ErrStale] if a family is not at its Revision or a message is not at its
	// From, and [ErrNotFound] if a message that must be there is not. Jobs are inserted
	// as by Enqueue; a job that it would refuse refuses the call.
	PublishMessages(ctx context.Context, now time.Time, publications []Publication) ([]PublishResult, error)

	// Message returns a message, or [ErrNotFound]. One without a KeepUntil is deleted in
	// the transaction that deletes the last of its jobs, or that has published it without
	// any. One with a KeepUntil is deleted by PublishMessages and PurgeFinished, some in
	// each call, once its jobs are gone and its KeepUntil is over. Until it is deleted
	// Message still returns it, but for PublishMessages it is gone.
	Message(ctx context.Context, id string) (Message, error)

	// MessageWith is Message with the revisions of up to [MostEntries] entries as of the same
	// moment, in the order of their names: zero for one that is not there. It is for callers
	// that remember entries.
	MessageWith(ctx context.Context, id string, entries ...EntryName) (m Message, revisions []int64, err error)

	// Messages lists the messages of a topic that were published at since or later, at
	// most limit of them, without their bodies, in the order of PublishedAt and then of
	// their publication. after is the next of the call before, or empty. next is empty if
	// there are no more.
	Messages(ctx context.Context, topic string, since time.Time, after string, limit int) (messages []Message, next string, err error)
}

// MostEntries is how many entries MessageWith takes.
const MostEntries = 4

// EntryName is the key of an entry.
type EntryName struct {
	Class string `json:"class"`
	Name  string `json:"name"`
}

// Entry is a small document under a name.
type Entry struct {
	Class  string `json:"class"` // what it is; with Name it is the entry's key
	Name   string `json:"name"`
	Family string `json:"family,omitempty"` // entries whose changes concern each other; empty: none
	// Revision is that of the entry's last write.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Doc       []byte    `json:"doc"`              // not nil, but for Delete
	Delete    bool      `json:"delete,omitempty"` // of PutEntries
}

// Message is what jobs deliver.
type Message struct {
	ID          string    `json:"id"`
	Topic       string    `json:"topic"`
	PublishedAt time.Time `json:"published_at"`
	KeepUntil   time.Time `json:"keep_until,omitzero"`  // zero: only while its jobs are there
	Attributes  []byte    `json:"attributes,omitempty"` // not empty; nil: none
	Body        []byte    `json:"body,omitempty"`       // not nil; of Messages nil
	// Cursor is how far a publication in steps has come, see Publication.To.
	Cursor string `json:"cursor,omitempty"`
}

// Publication is a message with jobs that deliver it.
type Publication struct {
	// Family, if not empty, must be at Revision.
	Family   string
	Revision int64
	// Message is stored; its PublishedAt is now. If a message of another Topic has its ID,
	// the call is refused with a [*MessageIDError]. If one of the same Topic has its ID, or
	// was published with the same Dedup less than its DedupFor before or after now, nothing
	// of the publication is written, and it is a duplicate of that one. KeepUntil is at
	// least the end of DedupFor.
	Message  Message
	Dedup    string // empty: none
	DedupFor time.Duration
	// Existing says that the message must be there; of Message only the ID counts.
	// If From or To is set, its Cursor must be From and becomes To.
	Existing bool
	From, To string
	// Jobs that are inserted get the tag MessageTag(ID) beside their own. The message
	// stays while one of them is there, in whatever state. None has a Conflict that
	// Replaces.
	Jobs []NewJob
}

// PublishResult is the answer to a Publication.
type PublishResult struct {
	ID        string     `json:"id"` // of the message; of a duplicate that of the first
	Duplicate bool       `json:"duplicate,omitempty"`
	Jobs      []Enqueued `json:"jobs,omitempty"` // to Jobs in their order; nil of a duplicate
}

// MessageIDError is the error of a call of PublishMessages with the ID of a message of
// another Topic. It unwraps to [ErrMessageID].
type MessageIDError struct {
	Publication int // the index of that which was refused
}

func (*MessageIDError) Error() string { return ErrMessageID.Error() }
func (*MessageIDError) Unwrap() error { return ErrMessageID }

// MessageTag returns the tag of the jobs that deliver a message.
func MessageTag(id string) string { return "message:" + id }
