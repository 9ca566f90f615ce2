package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// rounds measures everything that was asked for. In each round each workload is
// measured for all systems one after the other, so that what disturbs the
// machine for a while disturbs them all; who comes first rotates.
func rounds(ctx context.Context, o options, out, errOut io.Writer) (all []sample, err error) {
	dir, err := os.MkdirTemp(o.dir, "errand-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := onDisk(dir); err != nil {
		return nil, err
	}
	stocks := shelf{dir: dir, scale: o.scale, errOut: errOut, made: map[string]string{}}
	for round := range o.rounds {
		for _, w := range o.workloads {
			if w.once && round > 0 {
				continue
			}
			if _, missing := w.place.tools(); missing != nil {
				if _, err := fmt.Fprintf(errOut, "%s is left out: %v\n", w.name, missing); err != nil {
					return nil, err
				}
				continue
			}
			for _, e := range rotated(fitting(o.systems, w), round) {
				file := ""
				if w.stock != nil {
					if file, err = stocks.get(ctx, e, w); err != nil {
						return nil, err
					}
				}
				if _, err := fmt.Fprintf(errOut, "round %d/%d %s %s\n", round+1, o.rounds, w.name, e.name); err != nil {
					return nil, err
				}
				s, err := spawn(ctx, spec{
					System: e.name, Workload: w.name, Round: round + 1, Scale: o.scale, Relaxed: o.relaxed, Place: w.place,
					Dir: dir, Profile: o.profileFor(e, w, round),
				}, file, errOut)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
				if o.json {
					if err := json.NewEncoder(out).Encode(s); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return all, nil
}

func fitting(from []entry, w workload) (fit []entry) {
	for _, e := range from {
		if w.fits(e) && (w.servers || !e.server) {
			fit = append(fit, e)
		}
	}
	return fit
}

func rotated(from []entry, by int) []entry {
	if len(from) == 0 {
		return nil
	}
	by %= len(from)
	return append(append([]entry(nil), from[by:]...), from[:by]...)
}

// profileFor names the file of a profile, "" for none.
func (o options) profileFor(e entry, w workload, round int) string {
	if o.profile == "" || round > 0 {
		return ""
	}
	many := false
	for _, other := range o.workloads {
		n := len(fitting(o.systems, other))
		many = many || n > 1 || n == 1 && other.name != w.name
	}
	if !many {
		return o.profile
	}
	ext := filepath.Ext(o.profile)
	name := strings.ReplaceAll(w.name, ":", "-")
	return strings.TrimSuffix(o.profile, ext) + "." + e.name + "." + name + ext
}

// spawn measures in a process of its own, so that memory, input and output are
// those of one system alone. The database is new, or a copy of file.
func spawn(ctx context.Context, s spec, file string, errOut io.Writer) (m sample, err error) {
	dir, err := os.MkdirTemp(s.Dir, "run-")
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.Dir = dir
	if file != "" {
		if err := copyFile(file, filepath.Join(dir, databaseName)); err != nil {
			return sample{}, err
		}
	}
	if s.Profile != "" {
		if s.Profile, err = filepath.Abs(s.Profile); err != nil {
			return sample{}, err
		}
	}
	m, err = start(ctx, s, errOut)
	// What was deleted is not to be written while the next one is measured.
	syscall.Sync()
	return m, err
}

// start runs a child process and returns its figures.
func start(ctx context.Context, s spec, errOut io.Writer) (m sample, err error) {
	cmd, err := command(ctx, s)
	if err != nil {
		return m, err
	}
	var got bytes.Buffer
	cmd.Stdout, cmd.Stderr = &got, errOut
	if err := cmd.Run(); err != nil {
		return m, fmt.Errorf("bench: %s, %s, round %d: %w", s.System, s.Workload, s.Round, err)
	}
	err = json.Unmarshal(got.Bytes(), &m)
	return m, err
}

// command is this program once more, with a spec.
func command(ctx context.Context, s spec) (*exec.Cmd, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args, err := s.Place.tools()
	if err != nil {
		return nil, err
	}
	args = append(args, self)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childVar+"="+string(text))
	if n := s.Place.Processors; n > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprint("GOMAXPROCS=", n))
	}
	cmd.Stderr = os.Stderr
	return cmd, nil
}

var errNoDisk = errors.New("bench: the directory is in memory: choose one on a disk with -dir")

// onDisk refuses a directory on which a sync costs nothing.
func onDisk(dir string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err
	}
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	if uint32(fs.Type) == tmpfs || uint32(fs.Type) == ramfs {
		return errNoDisk
	}
	return nil
}
