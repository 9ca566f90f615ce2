//go:build !linux && !darwin

package host

// StatFS returns nothing: the system is not asked.
func StatFS(string) (FileSystem, error) { return FileSystem{}, nil }

// Room returns false: the system is not asked.
func Room(string) (bytes int64, ok bool) { return 0, false }
