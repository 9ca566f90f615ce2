package sqlite

import (
	"os"
	"strings"
)

// bootID names the boot of the system: an instance of another boot did not
// crash, its machine went down. Empty if it cannot be told.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
