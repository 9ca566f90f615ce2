package program

import (
	"io"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// alone starts a program in a group for Ctrl-Break of its own.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// group is a job object. Windows ends its processes when the last handle is closed, so
// also when this process dies.
type group struct {
	job windows.Handle
	pid uint32
}

// newGroup puts a program into a job object. What the program has started before that
// is not in it.
func newGroup(cmd *exec.Cmd) (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	g := &group{job: job, pid: uint32(cmd.Process.Pid)} //nolint:gosec // a number of Windows, which has 32 bits
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		g.close()
		return nil, err
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, g.pid)
	if err != nil {
		g.close()
		return nil, err
	}
	defer windows.CloseHandle(process) //nolint:errcheck // there is nothing to do about it
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *group) terminate() { _ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.pid) }
func (g *group) kill()      { _ = windows.TerminateJobObject(g.job, 1) }

// empty reports whether no process is left.
func (g *group) empty() bool {
	var info struct {
		times                                  [2]int64
		periods                                [2]int64
		faults, total, active, totalTerminated uint32
	}
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.active == 0
}

func (g *group) close() { _ = windows.CloseHandle(g.job) }

// guard does nothing on Windows, where job objects do its work.
type guard struct{}

func newGuard([]string) (*guard, error) { return &guard{}, nil }

func (*guard) watch(*group)  {}
func (*guard) forget(*group) {}
func (*guard) close() error  { return nil }

// Guard returns at once.
func Guard(io.Reader) {}
