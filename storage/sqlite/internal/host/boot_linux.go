package host

import (
	"os"
	"strings"
)

// bootID returns a name of the current boot of the system: an instance of another
// boot did not crash, its machine went down. It returns "" if the system has no
// such name; then every process that died counts as crashed.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
