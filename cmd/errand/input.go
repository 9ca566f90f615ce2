package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// input is a file that may be a terminal or a pipe. A Read ends with ctx, whatever it
// waits for; the program ends then.
type input struct {
	ctx context.Context //nolint:containedctx // io.Reader has none
	r   io.Reader
	buf []byte
}

// Read reads in another goroutine, which is left behind if ctx ends.
func (in *input) Read(b []byte) (int, error) {
	if err := in.ctx.Err(); err != nil {
		return 0, err
	}
	if len(in.buf) < len(b) {
		in.buf = make([]byte, len(b))
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := in.r.Read(in.buf[:len(b)])
		done <- result{n, err}
	}()
	select {
	case <-in.ctx.Done():
		return 0, in.ctx.Err()
	case r := <-done:
		return copy(b, in.buf[:r.n]), r.err
	}
}

func (in *input) terminal() bool {
	f, ok := in.r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
