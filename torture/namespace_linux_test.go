package torture_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const insideEnv = "ERRAND_TORTURE_INSIDE" // set in the namespace

// runInNamespace runs the tests in a mount namespace of their own, so that no
// mount outlives them, whatever becomes of them, and none is seen by anybody
// else. A loop device lets go of its file with the last mount of it.
func runInNamespace() (code int, done bool) {
	if os.Getenv(insideEnv) != "" || os.Geteuid() != 0 {
		return 0, false
	}
	runtime.LockOSThread() // the inner process ends with the thread that started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), true
	}
	fmt.Fprintln(os.Stderr, "a mount namespace for the tests:", err)
	return 1, true
}

// ownMounts returns a child a mount namespace, in which it can believe in
// another boot.
func ownMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}

// leaveDisks takes all disks but that of a database out of the mount namespace of this
// process, which has copies of all: another test could not have its own back before this
// process ends.
func leaveDisks(database string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		mount, system, _ := strings.Cut(line, " - ") // see proc_pid_mountinfo(5)
		at, of := strings.Fields(mount), strings.Fields(system)
		if len(at) < 5 || len(of) < 2 || !strings.HasPrefix(of[1], "/dev/loop") || strings.HasPrefix(database, at[4]+"/") {
			continue
		}
		if err := unix.Unmount(at[4], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", at[4], err)
		}
	}
	return nil
}

// believeInBoot has this process, alone in its mount namespace, read another
// name of the boot of the system: after a power cut it is a new one.
func believeInBoot(name string) error {
	f, err := os.CreateTemp("", "boot")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the mount keeps it
	if _, err := f.WriteString(name + "\n"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	const boot = "/proc/sys/kernel/random/boot_id"
	if err := unix.Mount(f.Name(), boot, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount over %s: %w", boot, err)
	}
	b, err := os.ReadFile(boot)
	if err == nil && string(b) != name+"\n" {
		err = fmt.Errorf("%s still says %q", boot, b)
	}
	return err
}
