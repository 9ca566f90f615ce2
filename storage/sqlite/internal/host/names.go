package host

import (
	"fmt"
	"os"
)

// OtherNames returns why a file may be open by another name too, and the remedy:
// a hard link, or a mount of the file alone, as a container gets it. It returns
// "" if the file has one name, or if the system cannot tell.
func OtherNames(path string) (what, remedy string) {
	info, err := os.Stat(path)
	if err != nil {
		return "", ""
	}
	if n := links(info); n > 1 {
		return fmt.Sprintf("has %d names (hard links), each of which has a log of its own", n), "remove all names but one"
	}
	if mountedAlone(path) {
		return "is mounted by itself, so that its log is not where others find it", "mount the folder, not the file"
	}
	return "", ""
}
