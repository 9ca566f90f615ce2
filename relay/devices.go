package relay

import (
	"context"
	"crypto/rand"
	"database/sql"
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

// Device is a device whose jobs a server takes.
type Device struct {
	// Name names the device, in the form of names of queues. Its jobs have it in their
	// [errand.JobInfo].Origin.
	Name string `json:"name"`
	// Key is what the device's requests are verified with: the line of the public half of its key,
	// "ed25519-public:...", see [NewKey], or that of a key that both sides have,
	// "hmac-sha256:...", see [NewSharedKey], or [MutualTLS] if the device has a certificate and no key.
	Key string `json:"key"`
	// Rights are what the device may. If zero, it may do what the fields say.
	Rights Rights `json:"rights,omitzero"`
}

// MutualTLS is the [Device].Key of a device that has no key. Its requests count if the server of net/http
// that calls [Handler] has verified the certificate of the client, as with [tls.VerifyClientCertIfGiven], and the common name of the certificate, or one of its DNS
// names, is [Device].Name. So no proxy may end the TLS in between. It is for [Options].Key nil.
const MutualTLS = "mtls"

// Rights are what a device may.
type Rights struct {
	// Kinds are the kinds of jobs that the device may send, at most 100. Jobs of others are
	// refused. If nil, all kinds.
	Kinds []string `json:"kinds,omitzero"`
	// Queue is the queue in which the device's jobs are enqueued. If empty,
	// [HandlerOptions].Queue.
	Queue string `json:"queue,omitempty"`
	// MinPriority and MaxPriority bound the priorities of the device's jobs. Jobs with others
	// are refused. If both are zero, any priority.
	MinPriority int `json:"min_priority,omitempty"`
	MaxPriority int `json:"max_priority,omitempty"`
	// BytesADay is how many bytes of jobs, as they are sent, the server takes from the device in a day of
	// UTC. The request that reaches this limit is still taken. The jobs of those after it are told
	// to come on the next day. If zero, any number.
	BytesADay int64 `json:"bytes_a_day,omitempty"`
	// SharedKeys are prefixes of unique keys and groups, at most 100. A key or group that begins with
	// one of these stays as it is, and may be that of jobs of other devices and of the
	// server. If nil, all keys and groups are the device's own.
	SharedKeys []string `json:"shared_keys,omitempty"`
}

// DeviceInfo is what a server knows of a device.
type DeviceInfo struct {
	Name string `json:"name"`
	// KeyKind is "ed25519-public", "hmac-sha256" or [MutualTLS].
	KeyKind string `json:"key_kind"`
	// PublicKey is the line of the key that verifies, "ed25519-public:...". It is empty if both sides
	// have the key, or there is none.
	PublicKey string    `json:"public_key,omitempty"`
	Rights    Rights    `json:"rights,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"` // zero unless it is revoked
	// LastSeen is that of the stream that was seen last. It is zero if none was.
	LastSeen time.Time `json:"last_seen,omitzero"`
	// Held is how many streams are held.
	Held int `json:"held,omitempty"`
	// Full is true if the device has 1,000 streams. These go on, and the server takes no others of it.
	Full bool `json:"full,omitempty"`
	// Counts are those of all streams together.
	Counts  Counts       `json:"counts"`
	Streams []StreamInfo `json:"streams,omitempty"` // by ID
}

// add adds a stream that a row is about.
func (d *DeviceInfo) add(id string, e storage.Entry) error {
	row, err := streamOf(e)
	if err != nil {
		return err
	}
	d.Streams = append(d.Streams, StreamInfo{ID: id, LastSeen: e.UpdatedAt, N: row.N, Held: row.Held, Counts: row.Counts})
	d.Counts.Add(row.Counts)
	d.Full = len(d.Streams) >= maxStreams
	if row.Held {
		d.Held++
	}
	if e.UpdatedAt.After(d.LastSeen) {
		d.LastSeen = e.UpdatedAt
	}
	return nil
}

func infoOf(e storage.Entry) (DeviceInfo, error) {
	row, err := deviceOf(e)
	kind, _, _ := strings.Cut(row.Key, ":")
	d := DeviceInfo{Name: e.Name, KeyKind: kind, Rights: row.Rights, CreatedAt: row.created, RevokedAt: row.Revoked}
	if wire.KeyKind(kind) == wire.Ed25519Public {
		d.PublicKey = row.Key
	}
	return d, err
}

// StreamInfo is what a server knows of a stream.
type StreamInfo struct {
	ID string `json:"id"` // 32 hexadecimal digits
	// LastSeen is the time of the last request that had an effect.
	LastSeen time.Time `json:"last_seen"`
	N        uint64    `json:"n"`    // requests that had an effect, as both sides count them
	Held     bool      `json:"held"` // true until [Accept]
	Counts   Counts    `json:"counts"`
}

// Counts are numbers of jobs by what became of them, since the stream began. A job that was told
// to come later is counted each time.
type Counts struct {
	Enqueued   int64 `json:"enqueued"`
	Duplicates int64 `json:"duplicates"`
	Refused    int64 `json:"refused"`
	Later      int64 `json:"later"` // those that were behind another one among them
	Bytes      int64 `json:"bytes"` // of the requests with these jobs, as they were sent
}

func (c *Counts) fields() []*int64 {
	return []*int64{&c.Enqueued, &c.Duplicates, &c.Refused, &c.Later, &c.Bytes}
}

// Add adds more to c.
func (c *Counts) Add(more Counts) {
	by := more.fields()
	for i, n := range c.fields() {
		*n += *by[i]
	}
}

// NewKey returns a new key of Ed25519 as two lines: the private half signs and stays where it is
// made, and the public half verifies. A device has one, and so has a server.
func NewKey() (private, public string) {
	private = newKey(wire.Ed25519Private)
	public, err := wire.PublicKey(private)
	if err != nil {
		panic(err) // of no key that was made here
	}
	return private, public
}

// NewSharedKey returns a new key of HMAC-SHA256 as a line, for devices that are too small for
// Ed25519. The device and the server both keep it.
func NewSharedKey() string { return newKey(wire.HMACSHA256) }

func newKey(kind wire.KeyKind) string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return wire.FormatKey(kind, key)
}

// PutDevice adds a device to a server's queue, or replaces the key and the rights of the one with
// this name. A device that was revoked may send again. PutDevice returns an [errand.FieldError] for each fault.
func PutDevice(ctx context.Context, q *errand.Queue, d Device) error {
	d.Key = strings.TrimSpace(d.Key)
	if err := d.check(q); err != nil {
		return err
	}
	return inTx(ctx, q, func(_ *sql.Tx, in rows) error {
		row, err := in.device(ctx, d.Name)
		if err != nil && !errors.Is(err, errand.ErrNotFound) {
			return err
		}
		row.Key, row.Rights, row.Revoked = d.Key, d.Rights, time.Time{}
		return in.putDevice(ctx, d.Name, row)
	})
}

// Revoke ends what a device may: after Revoke has returned the server takes nothing of it. The jobs
// that came before stay. Revoke returns [errand.ErrNotFound] if there is no such device; one that
// is revoked stays so. [Restore] ends this.
func Revoke(ctx context.Context, q *errand.Queue, name string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	return inTx(ctx, q, func(_ *sql.Tx, in rows) error {
		row, err := in.device(ctx, name)
		if err != nil || !row.Revoked.IsZero() {
			return err
		}
		row.Revoked = q.Clock().Now.UTC()
		return in.putDevice(ctx, name, row)
	})
}

// Restore lets a device that was revoked send again, with the key and the rights that it had. Restore
// returns [errand.ErrNotFound] if there is no such device; one that is not revoked stays as it is.
func Restore(ctx context.Context, q *errand.Queue, name string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	return inTx(ctx, q, func(_ *sql.Tx, in rows) error {
		row, err := in.device(ctx, name)
		if err != nil || row.Revoked.IsZero() {
			return err
		}
		row.Revoked = time.Time{}
		return in.putDevice(ctx, name, row)
	})
}

// Devices returns the devices of a server's queue by name, with their streams. Streams that change
// meanwhile may be as before or after the change.
func Devices(ctx context.Context, q *errand.Queue) ([]DeviceInfo, error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	var all []DeviceInfo
	at := map[string]int{}
	err = rows{topics}.each(ctx, classDevice, "", func(e storage.Entry) error {
		d, err := infoOf(e)
		at[e.Name] = len(all)
		all = append(all, d)
		return err
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	err = rows{topics}.each(ctx, classStream, "", func(e storage.Entry) error {
		device, id := ofStream(e.Name)
		i, ok := at[device]
		if !ok {
			return nil // of a device that has come since
		}
		return all[i].add(id, e)
	})
	return all, err
}

// DevicesAfter returns what [Devices] does, of the devices whose names are greater than after, at
// most limit of them, which is from 1 to 10,000. It reads the file once, and once for each device.
func DevicesAfter(ctx context.Context, q *errand.Queue, after string, limit int) (all []DeviceInfo, err error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	page, _, err := topics.Entries(ctx, classDevice, "", after, limit)
	for _, e := range page {
		d, err := rows{topics}.info(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, err
}

// GetDevice returns a device of a server's queue with its streams, or [errand.ErrNotFound].
func GetDevice(ctx context.Context, q *errand.Queue, name string) (DeviceInfo, error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return DeviceInfo{}, err
	}
	if err := checkName("name", name); err != nil {
		return DeviceInfo{}, err
	}
	e, err := topics.Entry(ctx, classDevice, name)
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("device %q: %w", name, err)
	}
	return rows{topics}.info(ctx, e)
}

// info returns a device that a row is about.
func (r rows) info(ctx context.Context, e storage.Entry) (DeviceInfo, error) {
	d, err := infoOf(e)
	if err != nil {
		return d, err
	}
	err = r.each(ctx, classStream, d.Name+"/", func(e storage.Entry) error {
		device, id := ofStream(e.Name)
		if device != d.Name { // it has a slash
			return nil
		}
		return d.add(id, e)
	})
	return d, err
}

// Accept ends the holds of a device's streams, or of all devices' if name is empty, and returns how
// many streams were held. If the card of the device was cloned, the copy that has gone on goes on,
// and others begin new streams. If the server was put back, the device goes on with what the server lacks.
//
// From then on each job of that device is looked up by its [errand.JobInfo].Origin before it is
// enqueued: one that the server still keeps, live, finished or dead, is a duplicate. So what both copies of a
// card have is enqueued once, unless the server has deleted it since.
//
// Accept returns [errand.ErrNotFound] if there is no device of that name.
func Accept(ctx context.Context, q *errand.Queue, name string) (n int, err error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return 0, err
	}
	prefix := ""
	if name != "" {
		if err := checkName("name", name); err != nil {
			return 0, err
		}
		if _, err := (rows{topics}).device(ctx, name); err != nil {
			return 0, err
		}
		prefix = name + "/"
	}
	held := map[string][]string{} // names of streams by device
	err = rows{topics}.each(ctx, classStream, prefix, func(e storage.Entry) error {
		row, err := streamOf(e)
		if device, _ := ofStream(e.Name); row.Held && (name == "" || device == name) {
			held[device] = append(held[device], e.Name)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for device, streams := range held {
		ended := 0
		err := inTx(ctx, q, func(_ *sql.Tx, in rows) (err error) {
			ended, err = in.accept(ctx, device, streams)
			return err
		})
		if err != nil {
			return n, err
		}
		n += ended
	}
	return n, nil
}

// accept ends the holds of streams of a device, and returns how many there still were.
func (r rows) accept(ctx context.Context, device string, streams []string) (ended int, err error) {
	row, err := r.device(ctx, device)
	if err != nil {
		return 0, err
	}
	for _, name := range streams {
		s, err := r.stream(ctx, name)
		if err != nil {
			return 0, err
		}
		if !s.Held {
			continue
		}
		ended++
		s.Server = s.Accept(newToken())
		if err := r.putStream(ctx, name, s); err != nil {
			return 0, err
		}
	}
	if ended == 0 || row.Lookup {
		return ended, nil
	}
	row.Lookup = true
	return ended, r.putDevice(ctx, device, row)
}

func newToken() (t ratchet.Token) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

const (
	maxRight    = 100 // kinds, and shared keys
	maxShared   = 256
	mostUrgent  = 100
	leastUrgent = -100
)

func (d *Device) check(q *errand.Queue) error {
	var f faults
	f.add(checkName("name", d.Name))
	if _, err := wire.ParseVerifier(d.Key); err != nil && d.Key != MutualTLS {
		if !strings.Contains(d.Key, ":") {
			err = &wire.FieldError{Limit: "must be the line of a public key, of a key that both sides have, or " + MutualTLS}
		}
		f.key("key", err)
	}
	r := &d.Rights
	if r.Kinds != nil && len(r.Kinds) == 0 || len(r.Kinds) > maxRight {
		f.field("rights.kinds", len(r.Kinds), fmt.Sprintf("must be nil, or have 1 to %d kinds", maxRight))
	}
	for i, kind := range r.Kinds {
		f.add(checkName(fmt.Sprintf("rights.kinds[%d]", i), kind))
	}
	f.queue(q, "rights.queue", r.Queue)
	if r.MinPriority < leastUrgent || r.MaxPriority > mostUrgent || r.MinPriority > r.MaxPriority {
		f.field("rights.min_priority, rights.max_priority", fmt.Sprintf("%d, %d", r.MinPriority, r.MaxPriority), "must be between -100 and 100, the first at most the second")
	}
	if r.BytesADay < 0 {
		f.field("rights.bytes_a_day", r.BytesADay, "must not be negative")
	}
	if len(r.SharedKeys) > maxRight {
		f.field("rights.shared_keys", len(r.SharedKeys), fmt.Sprintf("must be at most %d", maxRight))
	}
	for i, prefix := range r.SharedKeys {
		if prefix == "" || len(prefix) > maxShared {
			f.field(fmt.Sprintf("rights.shared_keys[%d]", i), prefix, fmt.Sprintf("must be 1 to %d bytes", maxShared))
		}
	}
	return f.err()
}

// faults are what is wrong with an input.
type faults []error

func (f *faults) add(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

func (f *faults) field(name string, value any, limit string) {
	f.add(&errand.FieldError{Field: name, Value: value, Limit: limit})
}

// key adds what is wrong with a key. It does not show the key.
func (f *faults) key(name string, err error) {
	limit := "must be the line of a key"
	if fault, ok := errors.AsType[*wire.FieldError](err); ok {
		limit = fault.Limit
	}
	f.field(name, "...", limit)
}

// queue checks the name of a queue of q, which may be empty.
func (f *faults) queue(q *errand.Queue, field, name string) {
	topics, err := door.Open[errand.NewJob](q)
	if err == nil && name != "" {
		err = topics.CheckQueue(field, name)
	}
	f.add(err)
}

func (f faults) err() error { return errors.Join(f...) }

// checkName checks the name of a device or a server.
func checkName(field, name string) error {
	if !wire.IsName(name) {
		return &errand.FieldError{Field: field, Value: name, Limit: wire.NameForm}
	}
	return nil
}
