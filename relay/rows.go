package relay

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// The classes of entries. A device's has its name, and a stream's that of its device, a slash and
// the ID of the stream.
const (
	classDevice = "relay-device"
	classStream = "relay-stream"
)

// rows are what a server keeps of devices and streams: outside of transactions, or in one.
type rows struct {
	door.Topics[errand.NewJob]
}

// inTx runs fn in a transaction of the queue.
func inTx(ctx context.Context, q *errand.Queue, fn func(tx *sql.Tx, in rows) error) error {
	return q.Tx(ctx, func(tx *sql.Tx) error {
		topics, err := door.TopicsTx[errand.NewJob](q, tx)
		if err != nil {
			return err
		}
		return fn(tx, rows{topics})
	})
}

// put writes an entry. A revision of zero means that it is new.
func (r rows) put(ctx context.Context, class, name string, revision int64, doc []byte) error {
	_, err := r.PutEntries(ctx, []storage.Entry{{Class: class, Name: name, Revision: revision, Doc: doc}})
	return err
}

// each calls fn for all entries of a class whose names begin with prefix, by name.
func (r rows) each(ctx context.Context, class, prefix string, fn func(storage.Entry) error) error {
	after, limit := prefix, entryPage
	if prefix != "" {
		limit = fewEntries
	}
	for ; ; limit = entryPage {
		page, _, err := r.Entries(ctx, class, "", after, limit)
		if err != nil {
			return err
		}
		for _, e := range page {
			if !strings.HasPrefix(e.Name, prefix) {
				return nil
			}
			if err := fn(e); err != nil {
				return err
			}
			after = e.Name
		}
		if len(page) < limit {
			return nil
		}
	}
}

// entryPage is how many entries are read at a time, and fewEntries how many of those with a prefix are
// read first: mostly it is that of a device, which has some streams.
const (
	entryPage  = 500
	fewEntries = 16
)

// deviceRow is what the server keeps of a device.
type deviceRow struct {
	Key     string    `json:"key"`
	Rights  Rights    `json:"rights,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
	// Lookup is true if each job is looked up by its origin before it is enqueued, see Accept.
	Lookup bool `json:"lookup,omitempty"`
	// DayBytes is how many bytes have come on Day, which is counted from 1970, if that is limited.
	Day      int64 `json:"day,omitempty"`
	DayBytes int64 `json:"day_bytes,omitempty"`

	revision int64
	created  time.Time
}

// device returns the row of a device, or [errand.ErrNotFound].
func (r rows) device(ctx context.Context, name string) (deviceRow, error) {
	e, err := r.Entry(ctx, classDevice, name)
	if err != nil {
		return deviceRow{}, fmt.Errorf("device %q: %w", name, err)
	}
	return deviceOf(e)
}

func deviceOf(e storage.Entry) (d deviceRow, err error) {
	if err := json.Unmarshal(e.Doc, &d); err != nil {
		return d, fmt.Errorf("%w: device %q: %w", errand.ErrCorrupt, e.Name, err)
	}
	d.revision, d.created = e.Revision, e.CreatedAt
	return d, nil
}

func (r rows) putDevice(ctx context.Context, name string, d deviceRow) error {
	doc, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return r.put(ctx, classDevice, name, d.revision, doc)
}

// streamRow is what the server keeps of a stream.
type streamRow struct {
	ratchet.Server
	Counts

	revision int64
	doc      []byte // as it was read
}

// maxStreams is how many streams a device has at most. The first request of one reads the rows of all others.
const maxStreams = 1000

func streamName(device string, stream ratchet.ID) string {
	return device + "/" + hex.EncodeToString(stream[:])
}

// ofStream returns the names of the device and of the stream of an entry.
func ofStream(name string) (device, stream string) {
	i := max(strings.LastIndexByte(name, '/'), 0)
	return name[:i], strings.TrimPrefix(name[i:], "/")
}

// stream returns the row of a stream, which is zero if the stream has not begun.
func (r rows) stream(ctx context.Context, name string) (streamRow, error) {
	e, err := r.Entry(ctx, classStream, name)
	if errors.Is(err, errand.ErrNotFound) {
		return streamRow{}, nil
	}
	if err != nil {
		return streamRow{}, err
	}
	return streamOf(e)
}

func streamOf(e storage.Entry) (streamRow, error) {
	s, err := decodeStream(e.Doc)
	if err != nil {
		return s, fmt.Errorf("%w: stream %q: %w", errand.ErrCorrupt, e.Name, err)
	}
	s.revision, s.doc = e.Revision, e.Doc
	return s, nil
}

// begun returns how many streams a device has, and whether some are of another file than that of one, see
// outRows.begin.
func (r rows) begun(ctx context.Context, device string, stream ratchet.ID) (n int, other bool, err error) {
	own := streamName(device, stream)
	err = r.each(ctx, classStream, device+"/", func(e storage.Entry) error {
		if of, _ := ofStream(e.Name); of == device { // others have a slash
			n++
			other = other || e.Name[:len(e.Name)-2] != own[:len(own)-2]
		}
		return nil
	})
	return n, other, err
}

// putStream writes the row of a stream if it has changed.
func (r rows) putStream(ctx context.Context, name string, s streamRow) error {
	doc := s.encode()
	if s.revision == 0 && string(doc) == string(streamRow{}.encode()) || string(doc) == string(s.doc) {
		return nil
	}
	return r.put(ctx, classStream, name, s.revision, doc)
}

// The first byte of the doc of a stream, and the flags in it.
const (
	streamVersion = 1

	flagHeld = 1 << 0
	flagBack = 1 << 1
)

// maxReasons is how many bytes the reasons of one send take together. With them and 1,000 jobs a doc has
// less than 64 KiB.
const maxReasons = 40 << 10

// encode returns the doc of a stream. Without jobs it has about 50 bytes, and 17 more for each job.
func (s streamRow) encode() []byte {
	var flags byte
	if s.Held {
		flags |= flagHeld
	}
	if s.Back.By {
		flags |= flagBack
	}
	b := []byte{streamVersion, flags}
	b = binary.AppendUvarint(b, s.N)
	b = append(append(b, s.T[:]...), s.P[:]...)
	if s.Back.By {
		b = append(binary.AppendUvarint(b, s.Back.N), s.Back.Token[:]...)
	}
	b = binary.AppendUvarint(b, s.Accepted)
	for _, n := range s.fields() {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	b = binary.AppendUvarint(b, s.S.N)
	b = binary.AppendUvarint(b, uint64(len(s.S.Verdicts)))
	for _, v := range s.S.Verdicts {
		b = append(append(b, byte(v.Outcome)), v.Job[:]...)
		if v.Outcome == ratchet.Refused {
			b = append(binary.AppendUvarint(b, uint64(len(v.Reason))), v.Reason...)
		}
	}
	return b
}

func decodeStream(doc []byte) (s streamRow, err error) {
	d := decoder{left: doc}
	if version := d.bytes(1)[0]; version != streamVersion {
		return s, fmt.Errorf("version %d: must be %d", version, streamVersion)
	}
	flags := d.bytes(1)[0]
	s.Held = flags&flagHeld != 0
	s.N = d.number()
	s.T, s.P = ratchet.Token(d.bytes(16)), ratchet.Token(d.bytes(16))
	if flags&flagBack != 0 {
		s.Back = ratchet.Fork{By: true, N: d.number(), Token: ratchet.Token(d.bytes(16))}
	}
	s.Accepted = d.number()
	for _, n := range s.fields() {
		*n = int64(d.number())
	}
	s.S.N = d.number()
	n := d.number()
	if n > wire.MaxJobs {
		return s, fmt.Errorf("%d jobs: must be at most %d", n, wire.MaxJobs)
	}
	for range n {
		v := ratchet.Verdict{Outcome: ratchet.Outcome(d.bytes(1)[0]), Job: ratchet.ID(d.bytes(16))}
		if v.Outcome == ratchet.Refused {
			v.Reason = string(d.bytes(d.number()))
		}
		s.S.Verdicts = append(s.S.Verdicts, v)
	}
	if len(d.left) > 0 {
		d.short = true
	}
	if d.short {
		return s, fmt.Errorf("%d bytes: must be those of a stream", len(doc))
	}
	return s, nil
}

// decoder reads the doc of a stream. Once it is short it returns zeros.
type decoder struct {
	left  []byte
	short bool
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.left)) {
		d.left, d.short = nil, true
		return make([]byte, min(n, 16))
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.left)
	if n <= 0 {
		d.left, d.short = nil, true
		return 0
	}
	d.left = d.left[n:]
	return v
}
