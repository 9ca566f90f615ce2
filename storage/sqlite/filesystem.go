package sqlite

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/errandq/errand/storage"
)

// fileSystem is where a file is, as far as the system tells.
type fileSystem struct {
	name   string // "" if it cannot be told
	shared bool   // with other machines
	free   int64  // bytes that this process may still write

	readOnly bool // as it is mounted here
}

// modeless are file systems that give all files the mode they were mounted with.
var modeless = []string{"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"}

const remedyInMemory = "put the database on a disk"

// inMemory reports whether what is there is gone with the next reboot.
func (fs fileSystem) inMemory() bool { return slices.Contains([]string{"tmpfs", "ramfs"}, fs.name) }

var warnInMemory sync.Once

// warnOfMemory says once in a process that jobs will not outlive the machine.
func warnOfMemory(path string, log *slog.Logger) {
	if fs, err := statFS(path); err == nil && fs.inMemory() {
		warnInMemory.Do(func() {
			log.Warn("errand: the database is in memory: all jobs are gone with the next reboot; "+remedyInMemory, "file", path, "type", fs.name)
		})
	}
}

// statFS looks at the file system of a path; tests replace it.
var statFS = statFileSystem

// sharedTypes are file systems, by the name that the system gives them, whose
// files other machines may have open too. There the locks of SQLite and of
// errand do not hold, nor does the memory that processes share beside a WAL.
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

// sharedType tells whether other machines may have the files of such a file
// system open.
func sharedType(name string) bool { return slices.Contains(sharedTypes, strings.ToLower(name)) }

// checkFileSystem refuses a path on a file system that is shared with other
// machines. The file need not exist yet.
func checkFileSystem(path string, o Options) error {
	if o.AnyFileSystem {
		return nil
	}
	at := path
	if _, err := os.Stat(at); err != nil {
		at = filepath.Dir(path)
	}
	// What cannot be told is no reason; whatever else is wrong comes out when it
	// is opened.
	fs, _ := statFS(at)
	if !fs.shared {
		return nil
	}
	return fmt.Errorf("%w: path %q is on a file system of type %s, which other machines may share: "+
		"must be a local one, unless Options.AnyFileSystem is set", storage.ErrUnsupportedDB, path, fs.name)
}

// freeSpace gives how many bytes can still be written beside a path; false if
// that cannot be told.
func freeSpace(path string) (int64, bool) {
	fs, err := statFS(filepath.Dir(path))
	return fs.free, err == nil && fs.name != ""
}
