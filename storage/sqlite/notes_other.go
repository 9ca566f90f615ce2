//go:build !unix || openbsd

package sqlite

import (
	"encoding/binary"
	"os"
)

// notes are written to the file of an instance. On OpenBSD what is in mapped
// memory is not what others read.
type notes struct{ file *os.File }

// start notes in a slot when the handler of a token was called.
func (n *notes) start(slot, token, at int64) error {
	b := binary.NativeEndian.AppendUint64(nil, uint64(token<<1))
	return n.put(slot, binary.NativeEndian.AppendUint64(b, uint64(at)))
}

// end notes in its slot that the handler has returned, or is being stopped.
func (n *notes) end(slot, token int64) error {
	return n.put(slot, binary.NativeEndian.AppendUint64(nil, uint64(token<<1|1)))
}

func (n *notes) put(slot int64, b []byte) error {
	_, err := n.file.WriteAt(b, slot*noteSize)
	return err
}

func (n *notes) close() error { return nil }
