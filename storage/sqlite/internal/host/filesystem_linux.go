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

// ext4 is the number of ext2 and ext3 too.
const ext4 = 0xef53

// overlay is the number of a file system whose devices the list of mounts does not have.
const overlay = 0x794c7630

// StatFS returns the file system of a path, which must exist. If statfs returns a
// number that is not in magics, the list of mounts has the name: FUSE has one
// number for all.
func StatFS(path string) (FileSystem, error) {
	fs, st, err := statFS(path)
	if err != nil {
		return fs, err
	}
	if fs.Name == "" {
		if fs.Name = fmt.Sprintf("%#x", uint32(st.Type)); uint32(st.Type) == overlay {
			fs.Name = "overlay"
		}
		var file syscall.Stat_t
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && syscall.Stat(path, &file) == nil {
			fs.Name = cmp.Or(mountType(string(mounts), uint64(file.Dev)), fs.Name) //nolint:unconvert // 32 bits on some processors
		}
	}
	return fs, nil
}

// Room returns how many bytes this process may still write beside a path, which must
// exist, and false if the system does not tell. It is StatFS without the name, since to
// read the list of mounts takes a hundred times as long.
func Room(path string) (bytes int64, ok bool) {
	fs, _, err := statFS(path)
	return fs.Free, err == nil
}

// statFS returns what statfs says of a path. The name is "" if it is not in magics.
func statFS(path string) (fs FileSystem, st syscall.Statfs_t, err error) {
	if err := syscall.Statfs(path, &st); err != nil {
		return fs, st, err
	}
	free := st.Bavail
	if os.Geteuid() == 0 { // what is reserved is for root
		free = max(st.Bavail, st.Bfree-min(st.Bfree, keptBack(&st)))
	}
	const readOnly = 1 // ST_RDONLY of statfs(2)
	return FileSystem{
		Name:     magics[uint32(st.Type)],
		Free:     int64(free) * int64(st.Bsize), //nolint:unconvert // 32 bits on some processors
		ReadOnly: st.Flags&readOnly != 0,
	}, st, nil
}

// keptBack returns at least how many free blocks not even root can write. ext4 keeps a
// fiftieth of its blocks for itself, at most 4,096 (s_resv_clusters), and statfs counts
// all blocks but those of its tables.
func keptBack(st *syscall.Statfs_t) uint64 {
	if st.Type != ext4 {
		return 0
	}
	return min(st.Blocks/40, 4096)
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
