package host

import "golang.org/x/sys/unix"

// hasACL reports whether a file has a list of permissions (acl(5)) beside its
// mode. It does not read the list: a wrong guess would lock somebody out.
func hasACL(path string) bool {
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}
