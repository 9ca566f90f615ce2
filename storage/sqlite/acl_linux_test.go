package sqlite_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// A user whom the list of permissions of the database names may have made the
// files beside it, whatever his group; without such a list a stranger has.
func TestOpen_ListOfPermissions(t *testing.T) {
	const owner, named, all = 1000, 1001, 1<<32 - 1
	path := filepath.Join(t.TempDir(), "jobs.db")
	s, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	list := binary.LittleEndian.AppendUint32(nil, 2)                                            // its version
	entries := [][3]uint32{{1, 6, all}, {2, 6, named}, {4, 0, all}, {16, 6, all}, {32, 0, all}} // owner, named, group, mask, others
	for _, e := range entries {
		list = binary.LittleEndian.AppendUint16(list, uint16(e[0]))
		list = binary.LittleEndian.AppendUint16(list, uint16(e[1]))
		list = binary.LittleEndian.AppendUint32(list, e[2])
	}
	if err := errors.Join(os.Chown(path, owner, owner), os.Chown(path+"-turn", named, named), os.Chmod(path, 0o660)); err != nil {
		t.Skip(err) // not root
	}
	if _, err := sqlite.Open(path, nil); !errors.Is(err, storage.ErrUnsupportedDB) {
		t.Errorf("without a list: %v, want ErrUnsupportedDB", err)
	}
	if err := unix.Setxattr(path, "system.posix_acl_access", list, 0); err != nil {
		t.Skip(err) // the file system has none
	}
	if s, err = sqlite.Open(path, nil); err != nil {
		t.Fatalf("with a list: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
