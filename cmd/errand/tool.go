package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"

	queue "github.com/errandq/errand"
)

// tool is what the verbs share: the streams, and the flags that all have.
type tool struct {
	in        io.Reader
	out, errs *screen
	json      bool
}

func newTool(in io.Reader, out, errs io.Writer) *tool {
	return &tool{in: in, out: newScreen(out), errs: newScreen(errs)}
}

// screen is a stream that may be a terminal.
type screen struct {
	io.Writer
	width  int // in columns; 0 if it is no terminal
	colour bool
}

func newScreen(w io.Writer) *screen {
	s := &screen{Writer: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.width = 80
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.width = width
	}
	s.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// terminal reports whether the stream is one.
func (s *screen) terminal() bool { return s.width > 0 }

// aboutError is an error about what the arguments name: a file, a job.
type aboutError struct {
	what string
	err  error
}

func (e *aboutError) Error() string {
	text := strings.TrimPrefix(e.err.Error(), "errand: ")
	if strings.Contains(text, e.what) {
		return text
	}
	return e.what + ": " + text
}

func (e *aboutError) Unwrap() error { return e.err }

func ofFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return &aboutError{path, err}
}

// logger writes warnings of the queue to the stream for errors.
func (t *tool) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(t.errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// readTries is how often a verb begins to read anew if others begin to write meanwhile.
const readTries = 5

// reading calls f with the queue in a file that is opened for reading alone: again, if it
// has returned ErrBusy.
func (t *tool) reading(ctx context.Context, path string, f func(q *queue.Queue) error) error {
	for try := 1; ; try++ {
		err := t.open(ctx, path, onlyRead(), f)
		if try == readTries || !errors.Is(err, queue.ErrBusy) {
			return err
		}
	}
}

func onlyRead() *queue.Options {
	return &queue.Options{SQLite: queue.SQLiteOptions{ReadOnly: true}}
}

// writing calls f with the queue in a file. With create it makes the file if there is none,
// and goes on where a first start was cut off. Of a file of others it never makes one.
func (t *tool) writing(ctx context.Context, path string, create bool, f func(q *queue.Queue) error) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !create {
		return ofFile(path, fmt.Errorf("%w (errand jobs enqueue --create makes a queue)", err))
	}
	return t.open(ctx, path, &queue.Options{SQLite: queue.SQLiteOptions{Existing: !create, Own: create}}, f)
}

func (t *tool) open(ctx context.Context, path string, o *queue.Options, f func(q *queue.Queue) error) error {
	o.Logger = t.logger()
	q, err := queue.Open(ctx, path, o)
	if err != nil {
		return ofFile(path, err)
	}
	return errors.Join(f(q), ofFile(path, q.Close()))
}

// show writes v with --json, and else what text prints.
func (t *tool) show(v any, text func(p *printer)) error {
	if t.json {
		return writeJSON(t.out, v, true)
	}
	w := bufio.NewWriter(t.out)
	p := printer{w: w}
	text(&p)
	return errors.Join(p.err, w.Flush())
}

// confirm returns nil if what it asks about may be done: if yes is set, or if somebody
// at a terminal says so.
func (t *tool) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	question := fmt.Sprintf(format, args...)
	if in, ok := t.in.(*input); !ok || !in.terminal() || !t.errs.terminal() {
		return fmt.Errorf("%w: %s needs --yes where nobody can be asked", errRefused, question)
	}
	p := printer{w: t.errs}
	p.printf("%s? [y/N] ", strings.ToUpper(question[:1])+question[1:])
	answer, err := bufio.NewReader(t.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errRefused
	}
	return p.err
}

// printer writes formatted text until there is an error, which it keeps. Text that is
// not of this program must be passed through safe.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
