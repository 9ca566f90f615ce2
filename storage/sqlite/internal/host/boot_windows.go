package host

import (
	"strconv"

	"golang.org/x/sys/windows/registry"
)

// bootID returns a name of the current boot of the system: an instance of another
// boot did not crash, its machine went down. It returns "" if the system has no
// such name; then every process that died counts as crashed. Windows counts its boots.
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
