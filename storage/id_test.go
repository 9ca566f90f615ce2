package storage_test

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// FuzzID makes IDs and reads them back, and reads what may be one.
func FuzzID(f *testing.F) {
	f.Add(int64(1_750_000_000_000), uint32(storage.MaxSalt), int64(storage.MaxKey), "0197a0a5-1c80-71ff-bfff-ffffffffffff")
	f.Add(int64(0), uint32(0), int64(1), "00000000-0000-7000-8000-000000000001")
	f.Add(int64(1<<48-1), uint32(1), int64(0), "0197A0A5-1C80-7FFF-BFFF-FFFFFFFFFFFF")
	f.Add(int64(1), uint32(2), int64(3), "0197a0a5+1c80-7fff-bfff-ffffffffffff")
	f.Add(int64(1), uint32(2), int64(3), "0197a0a5-1c80-7fff-bfff-fffffffffffg")
	f.Fuzz(func(t *testing.T, milli int64, salt uint32, key int64, text string) {
		milli, salt, key = milli&(1<<48-1), salt&storage.MaxSalt, key&storage.MaxKey
		id := storage.NewID(time.UnixMilli(milli), salt, key)
		if id.Key() != key || id.Salt() != salt || id.IsZero() {
			t.Errorf("%v has key %d and salt %d, want %d and %d", id, id.Key(), id.Salt(), key, salt)
		}
		if s := id.String(); s[14] != '7' || !strings.Contains("89ab", s[19:20]) {
			t.Errorf("%s is no UUID of version 7", s)
		}
		var back storage.ID
		if err := back.UnmarshalText([]byte(id.String())); err != nil || back != id {
			t.Errorf("%v became %v, %v", id, back, err)
		}
		var read storage.ID
		if err := read.UnmarshalText([]byte(text)); err != nil {
			if !strings.HasPrefix(err.Error(), "errand: id ") {
				t.Errorf("%q: %v", text, err)
			}
		} else if read.String() != strings.ToLower(text) {
			t.Errorf("%q was read as %v", text, read)
		}
	})
}

var _ interface {
	driver.Valuer
	sql.Scanner
} = (*storage.ID)(nil)

//errand:shows IDs in tables of the application | | an ID is kept as TEXT, and the zero ID as NULL
func TestID_InADatabase(t *testing.T) {
	id := storage.NewID(time.UnixMilli(1_750_000_000_000), 1, 2)
	if v, err := id.Value(); v != id.String() || err != nil {
		t.Errorf("Value returns %v, %v", v, err)
	}
	if v, err := (storage.ID{}).Value(); v != nil || err != nil {
		t.Errorf("Value of the zero ID returns %v, %v, want NULL", v, err)
	}
	for _, c := range []struct {
		v    any
		want storage.ID
		ok   bool
	}{
		{id.String(), id, true},
		{[]byte(id.String()), id, true},
		{id[:], id, true},
		{nil, storage.ID{}, true},
		{"", storage.ID{}, false},
		{id[:15], storage.ID{}, false},
		{int64(2), storage.ID{}, false},
	} {
		var got storage.ID
		if c.v == nil {
			got = id // which does not stay
		}
		if err := got.Scan(c.v); got != c.want || (err == nil) != c.ok {
			t.Errorf("Scan(%T %v) returns %v, %v", c.v, c.v, got, err)
		}
	}
}
