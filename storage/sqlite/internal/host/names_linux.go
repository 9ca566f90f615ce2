package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountedAlone reports whether a file is a mount point: it belongs to another
// mount than its folder. Kernels before 5.8 do not say of which mount a file
// is, but they list the mount points.
func mountedAlone(path string) bool {
	file, known := mountOf(path)
	folder, both := mountOf(filepath.Dir(path))
	if known && both {
		return file != folder
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && isMountPoint(string(mounts), path)
}

func mountOf(path string) (id uint64, ok bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
}

// isMountPoint looks for a path in the text of mountinfo; see mountType.
func isMountPoint(mountinfo, path string) bool {
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	return slices.ContainsFunc(strings.Split(mountinfo, "\n"), func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 4 && fields[4] == escaped
	})
}

// Writers returns how many descriptors of this process can write a file, and 0 if the system
// cannot tell.
func Writers(file os.FileInfo) (n int) {
	want, ok := file.Sys().(*syscall.Stat_t)
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil || !ok {
		return 0
	}
	for _, entry := range all {
		fd, err := strconv.Atoi(entry.Name())
		var st syscall.Stat_t
		if err != nil || syscall.Fstat(fd, &st) != nil || st.Dev != want.Dev || st.Ino != want.Ino {
			continue
		}
		if how, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && how&unix.O_ACCMODE != unix.O_RDONLY {
			n++
		}
	}
	return n
}
