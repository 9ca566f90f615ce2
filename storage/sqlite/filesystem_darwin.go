package sqlite

import (
	"os"
	"syscall"
)

// statFileSystem asks statfs, which here gives a name.
func statFileSystem(path string) (fileSystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return fileSystem{}, err
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
	return fileSystem{name: string(name), readOnly: st.Flags&readOnly != 0, shared: sharedType(string(name)), free: int64(free) * int64(st.Bsize)}, nil
}
