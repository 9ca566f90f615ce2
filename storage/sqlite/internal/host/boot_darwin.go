package host

import "golang.org/x/sys/unix"

// bootID returns a name of the current boot of the system: an instance of another
// boot did not crash, its machine went down. It returns "" if the system has no
// such name; then every process that died counts as crashed.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
