package sqlite

import (
	"fmt"
	"os"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

// The first slot of an instance's notes has no token. Where others have the time
// is the number of its pulses, or that no lease of it lapses while its file is
// locked.
const (
	pulseSlot = 0
	endless   = -1
)

// Pulse implements [storage.Pulser].
func (s *Store) Pulse() error {
	in := &s.self
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file == nil || in.left {
		return fmt.Errorf("%w: no lease was taken", storage.ErrClosed)
	}
	if err := underItsName(in.file); err != nil { // else nobody would see it
		return fmt.Errorf("errand: instance file: %w", err)
	}
	in.pulses++
	return translate(in.notes.Start(pulseSlot, 0, in.pulses))
}

func underItsName(f *os.File) error {
	there, err := os.Stat(f.Name())
	if err != nil {
		return err
	}
	own, err := f.Stat()
	if err == nil && !os.SameFile(there, own) {
		err = fmt.Errorf("%s: another file was put there", f.Name())
	}
	return err
}

// pulses returns how often an instance has shown that it lives, 0 if that cannot
// be read.
func (s *Store) pulses(id int64) int64 {
	f, err := openExisting(instancePath(s.path, id), os.O_RDONLY, s.info)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only ever read
	return host.ReadTime(f, pulseSlot)
}
