package sqlite

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// magics are file systems by the number that statfs gives: those of sharedTypes,
// from linux/magic.h and the sources of those that are not in the kernel.
var magics = map[uint32]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x01021997: "9p", 0x786f4256: "vboxsf",
	0xbacbacbc: "vmhgfs", 0x7c7c6673: "prl_fs", 0x5346414f: "afs", 0x6b414653: "afs", 0x73757245: "coda", 0x564c: "ncpfs",
	0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x01161970: "gfs2", 0x7461636f: "ocfs2", 0x47504653: "gpfs",
	0x19830326: "beegfs", 0x20030528: "orangefs",
}

// statFileSystem asks statfs, and about other numbers the list of mounts: FUSE
// has one for all.
func statFileSystem(path string) (fileSystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return fileSystem{}, err
	}
	free := st.Bavail
	if os.Geteuid() == 0 { // what is reserved is for root
		free = st.Bfree
	}
	fs := fileSystem{name: magics[uint32(st.Type)], free: int64(free) * int64(st.Bsize)} //nolint:unconvert // 32 bits on some processors
	const readOnly = 1                                                                   // ST_RDONLY of statfs(2)
	fs.readOnly = st.Flags&readOnly != 0
	if fs.name == "" {
		fs.name = fmt.Sprintf("%#x", uint32(st.Type))
		var file syscall.Stat_t
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && syscall.Stat(path, &file) == nil {
			fs.name = cmp.Or(mountType(string(mounts), uint64(file.Dev)), fs.name) //nolint:unconvert // 32 bits on some processors
		}
	}
	fs.shared = sharedType(fs.name)
	return fs, nil
}

// mountType gives the type of the file system with this device number, from
// the text of mountinfo (proc_pid_mountinfo(5)): "ID parent major:minor root
// mount-point options [tags...] - type source options".
func mountType(mountinfo string, dev uint64) string {
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff&0xffffffff
	number := fmt.Sprintf("%d:%d", major, minor)
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 2 && fields[2] == number {
			name, _, _ := strings.Cut(after, " ")
			return name
		}
	}
	return ""
}
