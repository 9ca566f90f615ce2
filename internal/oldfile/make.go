package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// builds are the last commits of each schema before the next one, from that of 25 November 2026 on:
// the files of these are supported.
var builds = []struct {
	schema int
	commit string
}{
	{1, "cf8f2ef5"},
	{2, "99c36ace"},
	{3, "655b4761"},
	{4, "94b9a658"},
	{5, "a5eb7f2d"},
	{6, "dbe336a5"},
	{7, "9e760351"},
	{8, "114c39bd"},
	{9, "02211a5e"},
	{10, "3d04b70b"},
}

const folder = "internal/oldfile"

// makeAll makes a file by each build of which dir has none, in the repository that this is run in.
func makeAll(ctx context.Context, dir string) (err error) {
	tmp, err := os.MkdirTemp("", "oldfile")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	for _, b := range builds {
		to := filepath.Join(dir, strconv.Itoa(b.schema)+".db.gz")
		if _, err := os.Stat(to); err == nil {
			continue
		}
		if err := makeFile(ctx, tmp, b.schema, b.commit, to); err != nil {
			return fmt.Errorf("schema %d: %w", b.schema, err)
		}
	}
	return nil
}

func makeFile(ctx context.Context, tmp string, schema int, commit, to string) error {
	program, err := build(ctx, ".", tmp, schema, commit)
	if err != nil {
		return err
	}
	file := filepath.Join(tmp, strconv.Itoa(schema)+".db")
	if out, err := exec.CommandContext(ctx, program, "fill", file).CombinedOutput(); err != nil { //nolint:gosec // built above
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := seal(ctx, file); err != nil {
		return err
	}
	data, err := os.ReadFile(file) //nolint:gosec // made above
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, packed.Bytes(), 0o600)
}

// seal brings the log into the database, and gives back what is free in it.
func seal(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(err, db.Close())
}

// build compiles this program in a checkout of a commit of the repository, below tmp.
func build(ctx context.Context, repository, tmp string, schema int, commit string) (program string, err error) {
	tree := filepath.Join(tmp, "tree") // the same for all, so that go build knows packages that are the same
	if err := os.RemoveAll(tree); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "-C", repository, "archive", commit) //nolint:gosec // one of builds
	text, err := archive.Output()
	if err != nil {
		return "", fmt.Errorf("git archive %s: %w", commit, err)
	}
	if err := unpack(bytes.NewReader(text), tree); err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(repository, folder, "*.go"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(tree, folder), 0o700); err != nil {
		return "", err
	}
	for _, source := range sources {
		name := filepath.Base(source)
		since, later := strings.CutPrefix(strings.TrimSuffix(name, ".go"), "since")
		if n, _ := strconv.Atoi(since); later && n > schema || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source) //nolint:gosec // of the repository
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(tree, folder, name), text, 0o600); err != nil {
			return "", err
		}
	}
	program = filepath.Join(tmp, commit+".exe")
	// What compiles sooner runs soon enough.
	c := exec.CommandContext(ctx, "go", "build", "-gcflags=github.com/errandq/errand/...=-N -l", "-ldflags=-s -w", "-o", program, "./"+folder) //nolint:gosec // these
	c.Dir = tree
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", commit, err, out)
	}
	return program, nil
}

func unpack(r io.Reader, dir string) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("the archive has %q", h.Name)
		}
		to := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o700)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(t); err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
}
