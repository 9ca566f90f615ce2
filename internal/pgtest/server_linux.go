package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Instance is a server in a directory, where its socket is too.
type Instance struct {
	dir  string
	args []string // of the program, which is the first
	attr syscall.SysProcAttr
	cmd  *exec.Cmd     // nil: the server was ended
	done chan struct{} // closed once it has ended, with end
	end  error
}

// bins are the folders of Debian's packages, one for each major version.
const bins = "/usr/lib/postgresql/*/bin"

// longestDir is how long the path of the directory may be: that of a socket has at most
// 107 bytes.
const longestDir = 107 - len("/"+socket)

const (
	prefix = "errand-pg-"
	socket = ".s.PGSQL.5432"
)

// access lets everybody in but the user locked, who needs a password.
const access = `local all locked scram-sha-256
local all all trust
`

// Start starts a server of the newest version that is installed, with settings of the form
// name=value beside those of a new cluster.
func Start(settings ...string) (*Instance, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := tempDir()
	if err != nil {
		return nil, err
	}
	s := &Instance{dir: dir}
	if err := s.start(bin, settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// tempDir makes a directory whose path is short enough. It deletes those of processes that
// were killed, whose servers have ended with them.
func tempDir() (string, error) {
	base := os.TempDir()
	if len(filepath.Join(base, prefix))+len("4294967295") > longestDir {
		base = "/tmp"
	}
	old, err := filepath.Glob(filepath.Join(base, prefix+"*"))
	for _, dir := range old {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Hour {
			continue
		}
		conn, err := net.Dial("unix", filepath.Join(dir, socket))
		if err == nil {
			_ = conn.Close()
			continue
		}
		_ = os.RemoveAll(dir)
	}
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(base, prefix)
}

// programs returns the folder of the newest version that is installed.
func programs() (string, error) {
	found, err := filepath.Glob(filepath.Join(bins, "initdb"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("there is no %s/initdb (apt-get install postgresql)", bins)
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })), nil
}

// major returns the major version in the path of a program.
func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func (s *Instance) start(bin string, settings []string) error {
	attr, err := s.owner()
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	// The collation of the database is not that of bytes, so that tests see what depends
	// on it.
	create := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", superuser, "--auth=trust", "--no-sync",
		"-E", "UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en")
	create.Dir, create.SysProcAttr = s.dir, attr
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(access), 0o666); err != nil {
		return err
	}
	s.args = []string{filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir}
	for _, setting := range append(settings, "listen_addresses=", "logging_collector=off") {
		s.args = append(s.args, "-c", setting)
	}
	// An immediate shutdown when this process dies, however it does.
	s.attr.Pdeathsig = syscall.SIGQUIT
	if attr != nil {
		s.attr.Credential = attr.Credential
	}
	if err := s.run(); err != nil {
		return err
	}
	if err := s.create(); err != nil {
		s.Stop()
		return err
	}
	return nil
}

// run runs the server, and waits until it accepts connections.
func (s *Instance) run() error {
	log := &journal{ready: make(chan struct{})}
	attr := s.attr
	s.cmd, s.done = exec.Command(s.args[0], s.args[1:]...), make(chan struct{})
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.SysProcAttr = s.dir, log, log, &attr
	started := make(chan error)
	go func() {
		// The signal comes when the thread ends that has started the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.end = s.cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		return err
	}
	select {
	case <-s.done:
		s.cmd = nil
		return fmt.Errorf("postgres ended: %w: %s", s.end, bytes.TrimSpace(log.text()))
	case <-log.ready:
		return nil
	}
}

// owner returns the user as whom the server runs: initdb refuses root. The directory becomes that
// user's.
func (s *Instance) owner() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres") // comes with the package
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	c := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return &syscall.SysProcAttr{Credential: c}, os.Chown(s.dir, int(uid), int(gid))
}

// create creates the database.
func (s *Instance) create() error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("host=%s user=%s dbname=postgres", s.dir, superuser))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	return errors.Join(err, conn.Close(ctx))
}

// journal is what a server logs, until it accepts connections.
type journal struct {
	ready chan struct{} // closed then

	mu  sync.Mutex
	all []byte
	is  bool // ready
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.is {
		return len(p), nil
	}
	j.all = append(j.all, p...)
	if j.is = bytes.Contains(j.all, []byte("ready to accept connections")); j.is {
		close(j.ready)
	}
	return len(p), nil
}

func (j *journal) text() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

var stopping sync.Mutex

// Stop ends the server at once, and deletes its directory.
func (s *Instance) Stop() {
	s.Crash()
	_ = os.RemoveAll(s.dir)
}

// Crash ends the server at once: its sessions are cut off, and nothing is written any more.
func (s *Instance) Crash() {
	stopping.Lock()
	defer stopping.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.done
	s.cmd = nil
}

// Again runs a server that has crashed once more, on the same data and socket.
func (s *Instance) Again() error { return s.run() }
