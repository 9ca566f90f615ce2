package storage

import (
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ID is a job's name for the outside: a UUID of version 7. Its last 48 bits,
// the group after the last dash, are the job's key in hexadecimal, so that a
// lookup needs no index of its own; the time and 23 random bits before it make
// IDs of different databases differ. The zero ID names no job.
type ID [16]byte

// MaxKey is the largest key that fits an ID: 2^48 - 1, about 89 years at
// 100,000 jobs a second.
const MaxKey = 1<<48 - 1

// MaxSalt is the largest salt: 23 bits, what SQLite keeps in three bytes.
const MaxSalt = 1<<23 - 1

// NewID makes the ID of the job with this key, created then. Only the bits of
// salt up to MaxSalt are used. Layout: RFC 9562, section 5.7.
func NewID(created time.Time, salt uint32, key int64) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:], uint64(created.UnixMilli())<<16|0x7000|uint64(salt>>14&0x1ff))
	binary.BigEndian.PutUint64(id[8:], uint64(key)&MaxKey)
	binary.BigEndian.PutUint16(id[8:], 0x8000|uint16(salt&0x3fff))
	return id
}

// Key returns the key of the job that id names.
func (id ID) Key() int64 { return int64(binary.BigEndian.Uint64(id[8:]) & MaxKey) }

// Salt returns the random bits of id.
func (id ID) Salt() uint32 {
	return uint32(binary.BigEndian.Uint16(id[6:])&0xfff)<<14 | uint32(binary.BigEndian.Uint16(id[8:])&0x3fff)
}

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the usual form of a UUID in lower case.
func (id ID) String() string { return uuid.UUID(id).String() }

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes the usual form of
// a UUID and no other.
func (id *ID) UnmarshalText(b []byte) error {
	u, err := uuid.ParseBytes(b)
	if err != nil || len(b) != 36 {
		return fmt.Errorf("errand: id %.50q: want the form of a UUID, 36 characters", b)
	}
	*id = ID(u)
	return nil
}

// Value implements [driver.Valuer]. An ID is kept as TEXT in its usual form, and
// the zero ID as NULL.
func (id ID) Value() (driver.Value, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id.String(), nil
}

// Scan implements [database/sql.Scanner]. It takes the usual form as a string or
// bytes, the 16 bytes of a BLOB, and NULL, which is the zero ID.
func (id *ID) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*id = ID{}
		return nil
	case string:
		return id.UnmarshalText([]byte(v))
	case []byte:
		if len(v) == len(id) {
			copy(id[:], v)
			return nil
		}
		return id.UnmarshalText(v)
	}
	return fmt.Errorf("errand: id of type %T: must be TEXT, a BLOB of 16 bytes, or NULL", v)
}
