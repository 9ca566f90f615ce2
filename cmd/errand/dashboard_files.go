package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"

	"github.com/errandq/errand/dashboard"
)

// listener listens where the flags say.
func (f *dashboardFlags) listener(ctx context.Context) (net.Listener, error) {
	var on net.ListenConfig
	if f.socket == "" {
		l, err := on.Listen(ctx, "tcp", f.listen)
		if err != nil {
			err = fmt.Errorf("--listen %s: %w", f.listen, err)
		}
		return l, err
	}
	l, err := listenSocket(ctx, f.socket)
	if err != nil {
		err = fmt.Errorf("--socket %s: %w", f.socket, err)
	}
	return l, err
}

// ownSocket is a socket that is removed when it is closed, unless something else has taken its
// place.
type ownSocket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// mostPath is how long the path of a socket may be on all systems.
const mostPath = 103

// listenSocket makes a socket that only this user may use. It takes the place of one on which
// nobody listens, and of nothing else.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case len(path) > mostPath:
		return nil, fmt.Errorf("must have at most %d bytes: use a path from a folder that is nearer", mostPath)
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, errors.New("there is a file that is no socket")
	default:
		var to net.Dialer
		if c, err := to.DialContext(ctx, "unix", path); err == nil {
			return nil, errors.Join(errors.New("somebody listens on it"), c.Close())
		} else if !isRefused(err) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	var l net.Listener
	err = privately(func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &ownSocket{UnixListener: l.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false)
	err = os.Chmod(path, 0o600)
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// Close closes the socket and removes its file.
func (s *ownSocket) Close() error {
	err := s.UnixListener.Close()
	if now, errNow := os.Lstat(s.path); errNow == nil && os.SameFile(now, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// keptFile is the file of a queue.
type keptFile struct {
	path string
	info os.FileInfo
	open *os.File // so that no other file gets its number; nil on Windows, where it could not be deleted
}

func keepFile(path string) (*keptFile, error) {
	k := &keptFile{path: path}
	var err error
	if runtime.GOOS == "windows" {
		k.info, err = os.Stat(path)
		return k, err
	}
	if k.open, err = os.Open(path); err != nil {
		return nil, err
	}
	k.info, err = k.open.Stat()
	return k, err
}

// replaced reports whether there is another file in its place.
func (k *keptFile) replaced() bool {
	info, err := os.Stat(k.path)
	return err == nil && !os.SameFile(info, k.info)
}

// Close is called when nobody uses the queue any more: it takes the locks that this process has on
// the file.
func (k *keptFile) Close() error {
	if k.open == nil {
		return nil
	}
	return k.open.Close()
}

// readUsers reads a file with those who may enter, which nobody else may read.
func readUsers(path string) (map[string]dashboard.User, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && info.Mode()&0o077 != 0: // where modes say nothing
		return nil, fmt.Errorf("others may read or write it: chmod 600 %s", path)
	}
	users, err := dashboard.ReadUsers(file)
	if err == nil && len(users) == 0 {
		err = errors.New("it names nobody: each line must be name:role:hash, with a hash of errand dashboard --hash")
	}
	return users, err
}

// printHash reads a password, and prints its hash. At a terminal it is not shown.
func (t *tool) printHash(ctx context.Context) error {
	password, err := t.password(ctx)
	if err != nil {
		return err
	}
	hash, err := dashboard.HashPassword(password)
	if err != nil {
		return err
	}
	p := printer{w: t.out}
	p.printf("%s\n", hash)
	return p.err
}

func (t *tool) password(ctx context.Context) (string, error) {
	in, ok := t.in.(*input)
	if !ok || !in.terminal() {
		text, err := readWhole(t.in, "-")
		return strings.TrimRight(string(text), "\r\n"), err
	}
	fd := int(in.r.(*os.File).Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	p := printer{w: t.errs}
	p.printf("Password: ")
	var typed []byte
	read := make(chan error, 1)
	go func() {
		var err error
		typed, err = term.ReadPassword(fd)
		read <- err
	}()
	select {
	case err = <-read:
	case <-ctx.Done(): // what is typed from now on is shown again
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}
	p.printf("\n")
	return string(typed), errors.Join(err, p.err)
}
