package host

import (
	"slices"
	"strings"
)

// FileSystem is where a file is, as far as the system tells.
type FileSystem struct {
	Name     string // of the type; "" if the system does not tell
	Free     int64  // bytes that this process may still write
	ReadOnly bool   // as mounted here
}

// sharedTypes are types of file systems whose files other machines may have open
// too. There neither the locks of SQLite and of errand hold, nor the memory that
// processes share beside a write-ahead log.
var sharedTypes = []string{
	"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "vboxsf", "vmhgfs", "prl_fs", "virtiofs",
	"afs", "afpfs", "coda", "ncpfs", "ceph", "lustre", "gfs", "gfs2", "ocfs2", "gpfs", "beegfs", "orangefs", "pvfs2",
	"webdav", "davfs", "ftp", "osxfuse", "macfuse", "fakeowner",
	// FUSE says only what the mount calls itself.
	"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.goofys", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse",
	"fuse.davfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.vmhgfs-fuse", "fuse.juicefs", "fuse.seaweedfs", "fuse.mfs",
	"fuse.moosefs", "fuse.lizardfs", "fuse.mount-s3", "fuse.blobfuse", "fuse.blobfuse2", "fuse.smbnetfs", "fuse.nfs",
	"fuse.grpcfuse", "fuse.osxfs", "fuse.prl_fsd", "fuse.google-drive-ocamlfuse", "fuse.onedriver", "fuse.hdfs",
}

// Shared reports whether other machines may have the files open.
func (fs FileSystem) Shared() bool { return slices.Contains(sharedTypes, strings.ToLower(fs.Name)) }

// CountsBlocks reports whether it is known that a file has as many blocks as were written to it: none
// is compressed, nor told of late.
func (fs FileSystem) CountsBlocks() bool {
	return slices.Contains([]string{"ext4", "xfs", "tmpfs"}, fs.Name)
}

// InMemory reports whether the files are gone with the next reboot.
func (fs FileSystem) InMemory() bool { return slices.Contains([]string{"tmpfs", "ramfs"}, fs.Name) }

// Modeless reports whether all files have the mode that the file system was
// mounted with.
func (fs FileSystem) Modeless() bool {
	return slices.Contains([]string{"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"}, fs.Name)
}
