package sqlite

import "golang.org/x/sys/unix"

// bootID names the boot of the system: an instance of another boot did not
// crash, its machine went down. Empty if it cannot be told: then every process
// that died counts as crashed.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
