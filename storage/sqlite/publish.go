package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlPeers = `SELECT instance, name, boot FROM main.errand_instance ORDER BY instance`

	// mostShown is how much of a file is read: more was not written by errand.
	mostShown = 16 << 20
	// readAgain is how often a document is read while it is being written.
	readAgain = 3
)

var (
	_ storage.Publisher = (*Store)(nil)
)

// shown is what this Store shows to others: a file beside that of the instance, which
// is there for as long as the Store is open. It is written in place, without a lock;
// a line with its length and checksum is before the document, by which a reader knows
// one that is half written. A file that its process has left is not read, since the
// lock on the instance file is free.
type shown struct {
	mu  sync.Mutex // not that of the instance: a slow disk holds up no note
	doc []byte
	of  int64 // the number of the instance that the file is of; 0: there is none
}

func shownPath(db string, id int64) string { return fmt.Sprintf("%s-workers-%d", db, id) }

// Publish implements [storage.Publisher].
func (s *Store) Publish(doc []byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	own := &s.self.shown
	own.mu.Lock()
	defer own.mu.Unlock()
	own.doc = bytes.Clone(doc)
	return translate(s.show())
}

// show writes the document under the number that the instance has now; s.self.shown
// is locked.
func (s *Store) show() error {
	own, id := &s.self.shown, s.self.number()
	if s.opts.SingleProcess || id == 0 {
		return nil // nobody else would read it
	}
	if own.of != 0 && own.of != id {
		s.hide()
	}
	if own.doc == nil {
		own.of = id
		s.hide() // perhaps of another database that was here before
		return nil
	}
	f, err := openBeside(shownPath(s.path, id), os.O_RDWR, s.info)
	if err != nil {
		return err
	}
	own.of = id
	framed := frame(own.doc)
	_, err = f.WriteAt(framed, 0)
	if err == nil {
		err = f.Truncate(int64(len(framed)))
	}
	return errors.Join(err, f.Close())
}

// showAnew shows the document after the instance was registered.
func (s *Store) showAnew() {
	own := &s.self.shown
	own.mu.Lock()
	defer own.mu.Unlock()
	if err := s.show(); err != nil {
		s.opts.Logger.Warn("errand: other processes cannot see what the workers of this one do", "error", err)
	}
}

// hide deletes the file.
func (s *Store) hide() {
	own := &s.self.shown
	if own.of != 0 {
		_ = os.Remove(shownPath(s.path, own.of)) // nobody reads it once the lock of the instance is free
		own.of = 0
	}
}

// conceal takes the document back as the Store closes.
func (s *Store) conceal() {
	own := &s.self.shown
	own.mu.Lock()
	defer own.mu.Unlock()
	own.doc = nil
	s.hide()
}

// Published implements [storage.Publisher].
func (s *Store) Published(ctx context.Context) (out []storage.Published, err error) {
	var rows []struct {
		Instance   int64
		Name, Boot string
	}
	if err := s.reading(ctx, s.read, func(tx *sqlx.Tx) error { return tx.Select(&rows, sqlPeers) }); err != nil {
		return nil, err
	}
	coming, boot, registered := s.self.coming.Load(), host.BootID(), false
	self := s.self.number() // after coming, which is reset once the number is known
	for _, r := range rows {
		switch {
		case r.Instance == self || r.Instance == coming:
			registered = true
			out = append(out, storage.Published{Instance: r.Name, Doc: s.self.shown.copy(), Running: s.self.running()})
		case r.Boot != boot: // it is gone, or was closed
		default:
			lives, err := locked(instancePath(s.path, r.Instance), s.info)
			if lives || err != nil { // an error is of a file that this user may not read
				out = append(out, storage.Published{Instance: r.Name, Doc: readShown(shownPath(s.path, r.Instance), s.info), Running: s.runningIn(r.Instance)})
			}
		}
	}
	// It may have been registered since the rows were read.
	if doc := s.self.shown.copy(); !registered && doc != nil {
		out = append(out, storage.Published{Instance: cmp.Or(s.self.title(), processName()), Doc: doc, Running: s.self.running()})
	}
	return out, nil
}

// running returns how many handlers run here.
func (in *instance) running() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, at := range in.slots {
		if at.running && !at.stopping {
			n++
		}
	}
	return n
}

// runningIn returns how many notes of another instance say that a handler runs.
func (s *Store) runningIn(id int64) (n int) {
	f, err := openExisting(instancePath(s.path, id), os.O_RDONLY, s.info)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only ever read
	notes, _ := host.ReadNotes(io.NewSectionReader(f, 0, mostShown))
	for token, note := range notes {
		if token != 0 && token != partedToken && !note.Ended {
			n++
		}
	}
	return n
}

func (own *shown) copy() []byte {
	own.mu.Lock()
	defer own.mu.Unlock()
	return bytes.Clone(own.doc)
}

// frame puts before a document by what it is known to be whole.
func frame(doc []byte) []byte {
	return slices.Concat(fmt.Appendf(nil, "errand 1 %08x %d\n", crc32.ChecksumIEEE(doc), len(doc)), doc, []byte("\n"))
}

// unframe returns the document of a frame, or nil if it is not whole.
func unframe(b []byte) []byte {
	head, rest, _ := bytes.Cut(b, []byte("\n"))
	var sum uint32
	var n int
	if _, err := fmt.Sscanf(string(head), "errand 1 %08x %d", &sum, &n); err != nil || n < 0 || n > len(rest) || crc32.ChecksumIEEE(rest[:n]) != sum {
		return nil
	}
	return rest[:n:n]
}

// readShown returns what another instance shows, or nil if there is nothing that can
// be read.
func readShown(path string, db os.FileInfo) []byte {
	f, err := openExisting(path, os.O_RDONLY, db)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it has only been read
	for range readAgain {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, mostShown))
		if err != nil {
			return nil
		}
		if doc := unframe(b); doc != nil {
			return doc
		}
	}
	return nil
}

// begins are when handlers were called, as the notes of the instances say that are asked for.
type begins struct {
	s     *Store
	tx    *sqlx.Tx
	boots map[int64]string              // of the instances; nil: not read yet
	notes map[int64]map[int64]host.Note // by instance, and token
}

// begins reads nothing before it is asked for a job that runs.
func (s *Store) begins(tx *sqlx.Tx) *begins { return &begins{s: s, tx: tx} }

// of returns when the handler of a job was called; zero if it does not run, or that is not known.
// Notes of another boot were never synced, and are not believed.
func (a *begins) of(r *jobRow) (time.Time, error) {
	if r.State != running {
		return time.Time{}, nil
	}
	if a.boots == nil {
		var rows []struct {
			Instance   int64
			Name, Boot string
		}
		if err := a.tx.Select(&rows, sqlPeers); err != nil {
			return time.Time{}, err
		}
		a.boots, a.notes = map[int64]string{}, map[int64]map[int64]host.Note{}
		for _, p := range rows {
			a.boots[p.Instance] = p.Boot
		}
	}
	notes, read := a.notes[r.Instance]
	if boot, known := a.boots[r.Instance]; !read && known && boot == host.BootID() {
		notes = readNotes(instancePath(a.s.path, r.Instance), a.s.info)
		a.notes[r.Instance] = notes
	}
	return timeOrZero(notes[r.Token].At), nil
}

// readNotes returns the notes of an instance, or none if they cannot be read.
func readNotes(path string, db os.FileInfo) map[int64]host.Note {
	f, err := openExisting(path, os.O_RDONLY, db)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it has only been read
	notes, _ := host.ReadNotes(io.LimitReader(f, mostShown))
	return notes
}
