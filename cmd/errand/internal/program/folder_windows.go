package program

import (
	"os"
	"path/filepath"
)

const unlockFirst = true

// lockFile makes a file, if there is none. While it is open it cannot be deleted.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// mine reports true: temporary files are those of one user here.
func mine(os.FileInfo) bool { return true }

// clearFolder deletes a folder, unless its process lives, or it has no lock. See mine.
func clearFolder(path string) error {
	if os.Remove(filepath.Join(path, lockName)) != nil {
		return nil
	}
	return os.RemoveAll(path)
}
