package host

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// magics are the names in sharedTypes by the number that statfs returns, from
// linux/magic.h and the sources of file systems outside the kernel.
var magics = map[uint32]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x01021997: "9p", 0x786f4256: "vboxsf",
	0xbacbacbc: "vmhgfs", 0x7c7c6673: "prl_fs", 0x5346414f: "afs", 0x6b414653: "afs", 0x73757245: "coda", 0x564c: "ncpfs",
	0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x01161970: "gfs2", 0x7461636f: "ocfs2", 0x47504653: "gpfs",
	0x19830326: "beegfs", 0x20030528: "orangefs",
}

// StatFS returns the file system of a path, which must exist. If statfs returns a
// number that is not in magics, the list of mounts has the name: FUSE has one
// number for all.
func StatFS(path string) (FileSystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return FileSystem{}, err
	}
	free := st.Bavail
	if os.Geteuid() == 0 { // what is reserved is for root
		free = st.Bfree
	}
	fs := FileSystem{Name: magics[uint32(st.Type)], Free: int64(free) * int64(st.Bsize)} //nolint:unconvert // 32 bits on some processors
	const readOnly = 1                                                                   // ST_RDONLY of statfs(2)
	fs.ReadOnly = st.Flags&readOnly != 0
	if fs.Name == "" {
		fs.Name = fmt.Sprintf("%#x", uint32(st.Type))
		var file syscall.Stat_t
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && syscall.Stat(path, &file) == nil {
			fs.Name = cmp.Or(mountType(string(mounts), uint64(file.Dev)), fs.Name) //nolint:unconvert // 32 bits on some processors
		}
	}
	return fs, nil
}

// mountType returns the type of the file system with this device number, from
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
