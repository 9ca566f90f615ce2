package torture_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is an ext4 file system on a loop device, which can lose its power. Its image is in memory
// if there is room: that makes syncs cheap, and a cut leaves of it what it leaves on a disk.
type disk struct {
	t      *testing.T
	image  string
	dir    string // where it is mounted
	device string // empty while it is not
}

// newDisk makes a file system of this size, mounted until the test ends. That
// it vanishes also if the test is killed is what runInNamespace is for.
func newDisk(t *testing.T, size int64) *disk {
	t.Helper()
	d := &disk{t: t, image: filepath.Join(ramDir(t), "image"), dir: t.TempDir()}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, size); err != nil {
		t.Fatal(err)
	}
	// No reserve for root, so that full means full.
	d.run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", d.image)
	t.Cleanup(func() {
		if d.device != "" {
			d.unmount()
		}
	})
	d.mount()
	return d
}

func (d *disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// mount puts the disk in its place. The loop device is one that frees itself.
func (d *disk) mount() {
	d.t.Helper()
	d.run("mount", "-o", "loop,noatime", d.image, d.dir)
	d.device = d.run("findmnt", "-n", "-o", "SOURCE", "--target", d.dir)
	if !strings.HasPrefix(d.device, "/dev/loop") {
		d.t.Fatalf("%s is on %q, not a loop device", d.dir, d.device)
	}
}

// unmount takes it away, and waits until the kernel has let go of it: a second
// file system on the same image would damage both.
func (d *disk) unmount() {
	d.t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		err := unix.Unmount(d.dir, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(limit) {
			_ = unix.Unmount(d.dir, unix.MNT_DETACH)
			d.device = ""
			d.t.Fatalf("unmount: %v", err)
		}
		<-time.After(5 * time.Millisecond)
	}
	attached := filepath.Join("/sys/block", filepath.Base(d.device), "loop", "backing_file")
	for {
		b, err := os.ReadFile(attached)
		if err != nil || strings.TrimSpace(string(b)) != d.image {
			break
		}
		if time.Now().After(limit) {
			d.t.Fatalf("%s does not let go of its file", d.device)
		}
		<-time.After(time.Millisecond)
	}
	d.device = ""
}

// cut ends the file system at once: what has not been written to the device by
// now never will be.
func (d *disk) cut() {
	d.t.Helper()
	if err := shutDown(d.dir); err != nil {
		d.t.Fatal(err)
	}
}

// FS_IOC_SHUTDOWN of linux/fs.h, and its flag NOLOGFLUSH of include/uapi.
const (
	fsIocShutdown = 0x8004587d
	noLogFlush    = 2
)

func shutDown(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	how := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocShutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("shutdown of %s: %w", dir, errno)
	}
	return nil
}
