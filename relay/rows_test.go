package relay

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

func fullStream() streamRow {
	s := streamRow{
		Server: ratchet.Server{
			N: 1 << 40, T: ratchet.Token{1}, P: ratchet.Token{2}, Held: true, Accepted: 7,
			Back: ratchet.Fork{By: true, N: 9, Token: ratchet.Token{15: 3}}, S: ratchet.Taking{N: 12},
		},
		Counts: Counts{Enqueued: 1, Duplicates: 200, Refused: 3, Later: 4, Bytes: 1 << 50},
	}
	for o := ratchet.Enqueued; o <= ratchet.Later; o++ {
		v := ratchet.Verdict{Job: ratchet.ID{byte(o)}, Outcome: o}
		if o == ratchet.Refused {
			v.Reason = "no kind \"é\""
		}
		s.S.Verdicts = append(s.S.Verdicts, v)
	}
	return s
}

// What is read of a stream is what was written, and a doc that lacks any byte, or has one more, is refused.
func TestStreamRow(t *testing.T) {
	for _, s := range []streamRow{{}, {Server: ratchet.Server{N: 3, T: ratchet.Token{7}}}, fullStream()} {
		doc := s.encode()
		if got, err := decodeStream(doc); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("read %+v, %v: want %+v", got, err, s)
		}
		for n := range doc {
			if _, err := decodeStream(doc[:n]); err == nil {
				t.Errorf("the first %d of %d bytes are taken", n, len(doc))
			}
		}
		if _, err := decodeStream(append(bytes.Clone(doc), 0)); err == nil {
			t.Error("a byte more is taken")
		}
	}
	if _, err := decodeStream([]byte{2, 0}); err == nil {
		t.Error("another version is taken")
	}
}

// A stream costs little when it is settled, and its doc has room for all that a send can bring.
func TestStreamRow_size(t *testing.T) {
	s := streamRow{Server: ratchet.Server{N: 1 << 20}, Counts: Counts{Enqueued: 1 << 24, Bytes: 1 << 34}}
	if n := len(s.encode()); n > 100 {
		t.Errorf("a settled stream has %d bytes", n)
	}
	empty := len(s.encode())
	for i := range wire.MaxJobs {
		s.S.Verdicts = append(s.S.Verdicts, ratchet.Verdict{Job: ratchet.ID{byte(i), byte(i >> 8)}, Outcome: ratchet.Enqueued})
	}
	if n := len(s.encode()) - empty; n > 17*wire.MaxJobs+8 {
		t.Errorf("%d jobs have %d bytes", wire.MaxJobs, n)
	}
	for i, left := 0, maxReasons; left > 0; i++ {
		s.S.Verdicts[i].Outcome, s.S.Verdicts[i].Reason = ratchet.Refused, strings.Repeat("x", min(left, wire.MaxReason))
		left -= wire.MaxReason
	}
	if n := len(s.encode()); n > 64<<10 {
		t.Errorf("the largest doc has %d bytes", n)
	}
}

func TestOfStream(t *testing.T) {
	for _, device := range []string{"a", "pump/17", "a/" + fmt.Sprintf("%032x", 5)} {
		d, id := ofStream(streamName(device, ratchet.ID{15: 10}))
		if d != device || id != fmt.Sprintf("%032x", 10) {
			t.Errorf("%q: got %q, %q", device, d, id)
		}
	}
}
