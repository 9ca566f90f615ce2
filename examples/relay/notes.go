package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// notes are a file beside a queue, for the account: a line for each thing that a program has done, on the
// disk before the program goes on. A queue is not to prove itself.
type notes struct {
	mu   sync.Mutex
	file *os.File
}

// mark ends each line, so that one is whole or is seen not to be.
const mark = " ."

// openNotes opens or creates a file of notes. What was torn by the end of its last writer is cut off:
// that writer has not gone on.
func openNotes(path string) (*notes, error) {
	_, size, err := readNotes(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	n := &notes{file: f}
	if err = f.Truncate(size); err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err = errors.Join(err, f.Sync(), syncDir(filepath.Dir(path))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return n, nil
}

// syncDir makes the name of a new file durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// add writes lines. When it returns nil they are on the disk. It is safe for concurrent use.
func (n *notes) add(lines ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := io.WriteString(n.file, strings.Join(lines, mark+"\n")+mark+"\n"); err != nil {
		return err
	}
	return n.file.Sync()
}

func (n *notes) close() error { return n.file.Close() }

// readNotes returns the lines of a file as far as they are whole, and how many bytes these have.
func readNotes(path string) (lines []string, size int64, err error) {
	all, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	for line := range bytes.Lines(all) {
		text, ok := bytes.CutSuffix(line, []byte(mark+"\n"))
		if !ok {
			break
		}
		lines, size = append(lines, string(text)), size+int64(len(line))
	}
	return lines, size, err
}

// eachNote calls f with the words of each line.
func eachNote(path string, f func(words []string) error) error {
	lines, _, err := readNotes(path)
	if err != nil {
		return err
	}
	for i, line := range lines {
		if err := f(strings.Fields(line)); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, i+1, err)
		}
	}
	return nil
}
