package torture_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call of a traced child that changes a file of the database,
// or has it written.
type call struct {
	n      int // the how-manieth, over all threads
	name   string
	path   string
	size   uint64 // of a write, or to which the file is cut
	offset uint64 // of a pwrite64
}

func (c call) String() string {
	return fmt.Sprintf("call %d, %s of %s (%d bytes)", c.n, c.name, filepath.Base(c.path), c.size)
}

// change is what a tracer does to a call. The zero change lets it be.
type change struct {
	kill  bool          // the process, before the call is made
	torn  bool          // do half of the write; with kill, and then kill
	errno syscall.Errno // let it fail with this instead
	then  func()        // and then call this, before the process goes on
}

// traced lists the system calls that are counted, with where their path is.
var traced = map[uint64]struct {
	name string
	path int // argument that is a path; -1: the first is a file
	size int // argument that is a size; 0: none
}{
	unix.SYS_WRITE: {"write", -1, 2}, unix.SYS_PWRITE64: {"pwrite64", -1, 2},
	unix.SYS_FSYNC: {"fsync", -1, 0}, unix.SYS_FDATASYNC: {"fdatasync", -1, 0},
	unix.SYS_FTRUNCATE: {"ftruncate", -1, 1}, unix.SYS_FALLOCATE: {"fallocate", -1, 3},
	unix.SYS_UNLINK: {"unlink", 0, 0}, unix.SYS_UNLINKAT: {"unlinkat", 1, 0}, unix.SYS_OPENAT: {"openat", 1, 0},
}

// tracer runs a child as a debugger does and changes its system calls. strace
// could kill too, but counts the calls of each thread for itself, and cannot
// cut a write short.
type tracer struct {
	t       *testing.T
	dir     string // calls on files elsewhere are not counted
	decide  func(call) change
	calls   []call
	pid     int
	pending map[int]change // by thread, until its call returns
	regs    map[int]unix.PtraceRegs
}

// trace runs a child to its end, with calls on files in dir changed as decide
// says, and returns how it ended and the calls. What it says goes to the ledger.
func trace(t *testing.T, l *ledger, p part, dir string, decide func(call) change) (syscall.WaitStatus, []call, []string) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	in, keep, err := os.Pipe() // its end would end the child
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	out, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := &child{t: t}
	c.faulty.Store(true)
	var other []string
	read := make(chan error, 1)
	go func() { read <- l.read(c, out, func(line string) { other = append(other, line) }) }()

	tr := &tracer{t: t, dir: dir, decide: decide, pending: map[int]change{}, regs: map[int]unix.PtraceRegs{}}
	var status syscall.WaitStatus
	result := make(chan error, 1)
	go func() { // all of ptrace is of one thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		exe, err := os.Executable()
		if err != nil {
			result <- err
			return
		}
		sys := &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
		if p.Boot != "" {
			sys.Unshareflags = syscall.CLONE_NEWNS // see ownMounts
		}
		tr.pid, err = syscall.ForkExec(exe, []string{exe}, &syscall.ProcAttr{
			Env:   append(os.Environ(), partEnv+"="+string(text)),
			Files: []uintptr{in.Fd(), say.Fd(), os.Stderr.Fd()},
			Sys:   sys,
		})
		_, _ = in.Close(), say.Close()
		if err == nil {
			status, err = tr.run()
		}
		result <- err
	}()
	err = errors.Join(<-result, <-read)
	if errors.Is(err, syscall.EPERM) && !full() {
		t.Skip("no right to trace a child here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return status, tr.calls, other
}

// run is the loop of the debugger.
func (tr *tracer) run() (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(tr.pid, &status, syscall.WALL, nil); err != nil {
		return status, fmt.Errorf("wait for exec: %w", err)
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(tr.pid, options); err != nil {
		return status, fmt.Errorf("ptrace options: %w", err)
	}
	limit := time.AfterFunc(30*time.Second, func() { _ = syscall.Kill(tr.pid, syscall.SIGQUIT) }) // shows where it hangs
	defer limit.Stop()
	tid, signal := tr.pid, 0
	for {
		// A thread that was killed meanwhile is no more to be continued.
		if err := syscall.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return status, fmt.Errorf("ptrace: %w", err)
		}
		for {
			var err error
			tid, err = syscall.Wait4(-tr.pid, &status, syscall.WALL, nil)
			if err != nil && !errors.Is(err, syscall.EINTR) {
				return status, fmt.Errorf("wait: %w", err)
			}
			if err == nil && status.Stopped() {
				break
			}
			if err == nil && tid == tr.pid { // the last of its threads
				return status, nil
			}
		}
		signal = 0
		switch s := status.StopSignal(); {
		case s == syscall.SIGTRAP|0x80:
			if err := tr.stopped(tid); err != nil && !errors.Is(err, syscall.ESRCH) {
				return status, err
			}
		case s != syscall.SIGTRAP && s != syscall.SIGSTOP: // those are the debugger's own
			signal = int(s)
		}
	}
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h.
type syscallInfo struct {
	op   uint8 // 1 before the call, 2 after
	_    [3]byte
	arch uint32
	_    [2]uint64
	nr   uint64
	args [6]uint64
	_    uint64
}

// stopped looks at a thread that is about to make a call, or has made one.
func (tr *tracer) stopped(tid int) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("ptrace: what was called: %w", errno)
	}
	if info.op == 2 {
		return tr.after(tid)
	}
	c, ok := tr.call(&info)
	if !ok {
		return nil
	}
	tr.calls = append(tr.calls, c)
	what := tr.decide(c)
	if what.kill && !what.torn {
		if what.then != nil {
			what.then()
		}
		return syscall.Kill(tr.pid, syscall.SIGKILL)
	}
	if !what.torn && what.errno == 0 {
		return nil
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	tr.pending[tid], tr.regs[tid] = what, regs
	if what.torn {
		regs.Rdx /= 2
	} else {
		regs.Orig_rax = ^uint64(0) // no call at all
	}
	return unix.PtraceSetRegs(tid, &regs)
}

// after returns a call that was changed its result.
func (tr *tracer) after(tid int) error {
	what, ok := tr.pending[tid]
	if !ok {
		return nil
	}
	delete(tr.pending, tid)
	if what.kill {
		return syscall.Kill(tr.pid, syscall.SIGKILL)
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	regs.Rdx = tr.regs[tid].Rdx
	if what.errno != 0 {
		regs.Rax = uint64(-int64(what.errno))
	}
	if what.then != nil {
		what.then()
	}
	return unix.PtraceSetRegs(tid, &regs)
}

// call reports whether what a thread is about to do is to be counted.
func (tr *tracer) call(info *syscallInfo) (call, bool) {
	s, ok := traced[info.nr]
	if !ok || info.nr == unix.SYS_OPENAT && info.args[2]&unix.O_CREAT == 0 {
		return call{}, false
	}
	c := call{n: len(tr.calls) + 1, name: s.name}
	if s.path < 0 {
		// It fails for a file that is closed, which is none of ours.
		c.path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tr.pid, int32(info.args[0])))
	} else {
		c.path = tr.text(info.args[s.path])
	}
	if s.size > 0 {
		c.size, c.offset = info.args[s.size], info.args[3]
	}
	return c, strings.HasPrefix(c.path, tr.dir+"/")
}

// text reads a string of the child.
func (tr *tracer) text(address uint64) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", tr.pid))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, int64(address)) // it may end sooner than b
	b, _, _ = bytes.Cut(b[:n], []byte{0})
	return string(b)
}
