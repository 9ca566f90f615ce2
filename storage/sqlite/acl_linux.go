package sqlite

import "golang.org/x/sys/unix"

// listed reports whether a file has a list of permissions (acl(5)) beside its
// mode. Who is in it is not asked: a wrong guess would lock somebody out.
func listed(path string) bool {
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}
