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
	return fileSystem{name: string(name), shared: sharedType(string(name)), free: int64(free) * int64(st.Bsize)}, nil
}
