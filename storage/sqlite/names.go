package sqlite

import (
	"fmt"
	"os"

	"github.com/errandq/errand/storage"
)

// checkNames refuses a file that has two names: a hard link, or a mount of the
// file alone, as a container gets it. SQLite finds the log by the name of the
// database. So who has the file open by another name has another log, and
// what is committed there is lost.
func checkNames(path string, o Options) error {
	if o.AnyFileSystem {
		return nil
	}
	if what, remedy := otherNames(path); what != "" {
		return fmt.Errorf("%w: path %q %s: %s, unless Options.AnyFileSystem is set", storage.ErrUnsupportedDB, path, what, remedy)
	}
	return nil
}

// otherNames returns why a file may be found by another name, and what to do,
// and "" if it cannot be. What cannot be known is no reason.
func otherNames(path string) (what, remedy string) {
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
