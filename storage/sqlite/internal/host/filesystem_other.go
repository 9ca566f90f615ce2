//go:build !linux && !darwin

package host

// StatFS returns nothing: the system is not asked.
func StatFS(string) (FileSystem, error) { return FileSystem{}, nil }
