package host

import (
	"encoding/binary"
	"io"
)

// noteSize is how many bytes of the file a slot takes.
const noteSize = 16

// Note is what a slot says of a token.
type Note struct {
	Ended bool
	At    int64 // as passed to Start
}

// ReadNotes returns the notes of a file by token. Slot words that are zero are
// no notes.
func ReadNotes(f io.Reader) (map[int64]Note, error) {
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	notes := map[int64]Note{}
	for ; len(b) >= noteSize; b = b[noteSize:] {
		if v := int64(binary.NativeEndian.Uint64(b)); v != 0 {
			notes[v>>1] = Note{v&1 == 1, int64(binary.NativeEndian.Uint64(b[8:]))}
		}
	}
	return notes, nil
}

// ReadToken returns the token of a slot, 0 if the slot cannot be read.
func ReadToken(f io.ReaderAt, slot int64) int64 {
	var b [noteSize]byte
	if _, err := f.ReadAt(b[:], slot*noteSize); err != nil {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(b[:]) >> 1)
}

// ReadTime returns the time of a slot whose token is zero. It returns 0 if the
// slot cannot be read or has a token.
func ReadTime(f io.ReaderAt, slot int64) int64 {
	var b [noteSize]byte
	if _, err := f.ReadAt(b[:], slot*noteSize); err != nil || binary.NativeEndian.Uint64(b[:]) != 0 {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(b[8:]))
}
