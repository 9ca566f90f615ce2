package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A ledger is the receiver's memory: a file with the ID of an accepted event
// on each line. It spans restarts and keeps duplicates, so that the accounting
// can count them.
type ledger struct {
	file    *os.File
	entries chan entry
	ended   chan struct{}
}

type entry struct {
	id   string
	done chan error
}

// openLedger opens or creates the file. If the last process was killed in the
// middle of a line, the line is closed: half an ID names no event, and since
// it was never acknowledged the event comes again.
func openLedger(path string) (*ledger, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		_, err = f.WriteString("\n")
	}
	if err := errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	syncDir(filepath.Dir(path))
	l := &ledger{file: f, entries: make(chan entry, 64), ended: make(chan struct{})}
	go l.write()
	return l, nil
}

// syncDir makes a new file's name durable. Some systems cannot sync a folder;
// there is nothing to be done about it.
func syncDir(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// Append records an event. When it returns nil, the record is on the disk.
func (l *ledger) Append(id string) error {
	e := entry{id, make(chan error, 1)}
	l.entries <- e
	return <-e.done
}

// write writes whatever has piled up during the last sync with one sync more:
// the same group commit that errand uses for its own file. After an error
// nothing is known about the end of the file, so every later entry fails too.
func (l *ledger) write() {
	defer close(l.ended)
	var failed error
	for e := range l.entries {
		group := []entry{e}
		for range len(l.entries) {
			group = append(group, <-l.entries)
		}
		var lines bytes.Buffer
		for _, e := range group {
			lines.WriteString(e.id + "\n")
		}
		if failed == nil {
			_, failed = l.file.Write(lines.Bytes())
		}
		if failed == nil {
			failed = l.file.Sync()
		}
		for _, e := range group {
			e.done <- failed
		}
	}
}

// Close ends the ledger. No Append may be under way or follow.
func (l *ledger) Close() error {
	close(l.entries)
	<-l.ended
	return l.file.Close()
}

// readLedger counts how often each ID was recorded. What was torn by a kill
// counts as an ID too, one that no event has.
func readLedger(path string) (map[string]int, error) {
	file, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	times := make(map[string]int)
	for line := range bytes.Lines(file) {
		times[string(bytes.TrimSpace(line))]++
	}
	return times, nil
}
