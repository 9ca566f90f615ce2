//go:build unix

package program

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
)

// alone starts a program in a process group of its own.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(cmd.SysProcAttr)
}

// group is a process group, named by its leader.
type group struct{ id int }

func newGroup(cmd *exec.Cmd) (*group, error) { return &group{cmd.Process.Pid}, nil }

func (g *group) terminate() { g.signal(syscall.SIGTERM) }
func (g *group) kill()      { g.signal(syscall.SIGKILL) }

// signal sends a signal to all that are in the group. If there is none left the error
// says so, and there is nothing to do.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.id, s) }

// empty reports whether no process is left.
func (g *group) empty() bool { return syscall.Kill(-g.id, 0) == syscall.ESRCH }

func (g *group) close() {}

// guard is the process that kills the groups when this process is gone. It is told of
// each group by a line, "+" and its number, and "-" when the group has ended.
type guard struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	to  *os.File
}

func newGuard(args []string) (*guard, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		closeAll(in, to)
		return nil, err
	}
	cmd := &exec.Cmd{Path: self, Args: args, Stdin: in, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	err = cmd.Start()
	closeAll(in)
	if err != nil {
		closeAll(to)
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{cmd: cmd, to: to}, nil
}

func (g *guard) watch(of *group)  { g.tell('+', of) }
func (g *guard) forget(of *group) { g.tell('-', of) }

// tell writes a line. If the guard is gone, somebody has killed it: programs run all
// the same.
func (g *guard) tell(sign byte, of *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = g.to.Write(append(strconv.AppendInt([]byte{sign}, int64(of.id), 10), '\n'))
}

func (g *guard) close() error {
	closeAll(g.to)
	return g.cmd.Wait()
}

// Guard is the main function of the guard. It returns when in has ended, after it has
// killed the groups that it was told of and that have not ended.
func Guard(in io.Reader) {
	// What is sent to all processes of a service is for the worker to heed.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	groups := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		id, err := strconv.Atoi(lines.Text()[1:])
		switch {
		case err != nil || id <= 1:
		case lines.Text()[0] == '+':
			groups[id] = true
		default:
			delete(groups, id)
		}
	}
	for id := range groups {
		(&group{id}).kill()
	}
}
