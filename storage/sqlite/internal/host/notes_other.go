//go:build !unix || openbsd

package host

import (
	"encoding/binary"
	"os"
)

// Notes are slots in a file, each with a token and a time. They are written to
// the file: on OpenBSD other processes do not read what is in mapped memory. A
// Notes is for one goroutine at a time.
type Notes struct{ File *os.File }

// Start writes a token and a time, such as when its handler was called.
func (n *Notes) Start(slot, token, at int64) error {
	b := binary.NativeEndian.AppendUint64(nil, uint64(token<<1))
	return n.put(slot, binary.NativeEndian.AppendUint64(b, uint64(at)))
}

// End marks the token of a slot as ended.
func (n *Notes) End(slot, token int64) error {
	return n.put(slot, binary.NativeEndian.AppendUint64(nil, uint64(token<<1|1)))
}

func (n *Notes) put(slot int64, b []byte) error {
	_, err := n.File.WriteAt(b, slot*noteSize)
	return err
}

// Close does nothing.
func (n *Notes) Close() error { return nil }
