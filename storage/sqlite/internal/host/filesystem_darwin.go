package host

import (
	"os"
	"syscall"
)

// StatFS returns the file system of a path, which must exist.
func StatFS(path string) (FileSystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return FileSystem{}, err
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	free := st.Bavail
	if os.Geteuid() == 0 {
		free = st.Bfree
	}
	const readOnly = 1 // MNT_RDONLY of statfs(2)
	return FileSystem{Name: string(name), ReadOnly: st.Flags&readOnly != 0, Free: int64(free) * int64(st.Bsize)}, nil
}

// Room returns how many bytes this process may still write beside a path, which must
// exist, and false if the system does not tell.
func Room(path string) (bytes int64, ok bool) {
	fs, err := StatFS(path)
	return fs.Free, err == nil
}
