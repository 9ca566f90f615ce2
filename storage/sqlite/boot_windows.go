package sqlite

import (
	"strconv"

	"golang.org/x/sys/windows/registry"
)

// bootID names the boot of the system: an instance of another boot did not
// crash, its machine went down. Windows counts its boots. Empty if it cannot be
// told: then every process that died counts as crashed.
func bootID() string {
	const path = `SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters`
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
	if err != nil {
		return ""
	}
	defer key.Close()
	n, _, err := key.GetIntegerValue("BootId")
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
