package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// prepare makes the keys of a server and its devices, and has the server know the devices.
func prepare(ctx context.Context, p places, names []string) (err error) {
	private, public := relay.NewKey()
	if err := writeFile(p.serverFile("key"), private); err != nil {
		return err
	}
	q, err := errand.Open(ctx, p.serverFile("db"), &errand.Options{Logger: logger(serverName)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for _, name := range names {
		key, known := relay.NewKey()
		for end, text := range map[string]string{"key": key, "server-key": public} {
			if err := writeFile(p.deviceFile(name, end), text); err != nil {
				return err
			}
		}
		d := relay.Device{Name: name, Key: known, Rights: relay.Rights{Kinds: []string{Reading{}.Kind()}}}
		if err := relay.PutDevice(ctx, q, d); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file that outlives a power cut.
func writeFile(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close(), syncDir(filepath.Dir(path)))
}

// serverProgram takes the jobs of devices, and does them, until ctx ends. It says where it listens, and how many
// jobs it does.
func serverProgram(ctx context.Context, p places, out io.Writer) (err error) {
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil))) // where serve says it
	key, err := os.ReadFile(p.serverFile("key"))
	if err != nil {
		return err
	}
	q, err := errand.Open(ctx, p.serverFile("db"), &errand.Options{
		Logger: logger(serverName), Retention: 30 * 24 * time.Hour, // the account reads them
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	handler, err := relay.Handler(q, &relay.HandlerOptions{
		Server: serverName, Key: strings.TrimSpace(string(key)), Logger: logger(serverName),
	})
	if err != nil {
		return err
	}
	n, err := openNotes(p.serverFile("notes"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	w := errand.NewWorker(q, nil)
	errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[Reading]) error {
		var lines []string
		for _, job := range jobs {
			lines = append(lines, fmt.Sprintf("ran %v %s %s %d", job.ID, job.Origin.Device, job.Origin.ID, job.Args.N))
		}
		if err := n.add(lines...); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "ran", len(jobs))
		return err
	}, errand.BatchOptions{Max: 200}, errand.HandlerOptions{MaxCrashes: 1000}) // it is no job's fault here

	return serve(ctx, "127.0.0.1:0", handler, w)
}
