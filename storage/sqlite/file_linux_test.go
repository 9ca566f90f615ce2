package sqlite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// asAnybody runs a test as a user who may not do everything, and reports whether
// that is this process.
func asAnybody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	runAsAnybody(t)
	return false
}

// runAsAnybody runs a test again, in a process of a user who may not do everything.
func runAsAnybody(t *testing.T, env ...string) {
	t.Helper()
	const nobody = 65534
	tmp, err := os.MkdirTemp("", "anybody") //nolint:usetesting // whose folders are closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env, cmd.Dir = append(os.Environ(), append(env, "TMPDIR="+tmp)...), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// wantAccess wants the doctor to say that a file or folder cannot be written.
func wantAccess(t *testing.T, path, remedy string) {
	t.Helper()
	found, err := sqlite.Examine(context.Background(), path, false, t0)
	if err != nil || !has(found, "access", sqlite.SeverityError) ||
		!slices.ContainsFunc(found, func(f sqlite.Finding) bool { return f.Remedy == remedy }) {
		t.Errorf("the doctor says %+v (%v), want %q", found, err, remedy)
	}
	if has(found, "modes", sqlite.SeverityWarning) {
		t.Errorf("the doctor says %+v, want nothing of the files beside it", found)
	}
}

// A database that this user cannot write is refused by name, before a file is
// made beside it.
//
//errand:shows a database of somebody else | | Open returns ErrReadOnly with the file, its mode and owner, and makes no file beside it; the doctor reports it, and advises nothing about the files beside it
func TestOpen_FileThatCannotBeWritten(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	for _, mode := range []os.FileMode{0o400, 0o420} {
		d := newDB(t, nil)
		if err := errors.Join(d.open().Close(), os.Remove(d.path+"-turn"), os.Chmod(d.path, mode)); err != nil {
			t.Fatal(err)
		}
		wantAccess(t, d.path, "chmod u+w "+d.path)
		_, err := sqlite.Open(d.path, nil)
		want := fmt.Sprintf("this user cannot write the database %s (mode %v, owner %d)", d.path, mode, os.Geteuid())
		if !errors.Is(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrReadOnly: %s", err, want)
		}
		if _, err := os.Stat(d.path + "-turn"); err == nil {
			t.Error("a file was made beside it")
		}
	}
}

// A file that this user cannot read, or a folder on the way that this user cannot enter, is
// refused by name, with its owner and what to do.
func TestOpen_FileThatCannotBeRead(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	for _, o := range []*sqlite.Options{{ReadOnly: true}, {Existing: true}} {
		for _, end := range []string{"", "-wal"} {
			d := newDB(t, nil)
			s, shut := d.open(), d.path+end
			if err := os.Chmod(shut, 0o200); err != nil {
				t.Fatal(err)
			}
			_, err := sqlite.Open(d.path, o)
			wantUnreadable(t, fmt.Sprintf("%+v, %s", o, end), err, fmt.Sprintf("read %s (mode --w-------, owner %d)", shut, os.Geteuid()))
			if err := errors.Join(os.Chmod(shut, 0o700), s.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A folder on the way that this user cannot enter is named, however far from the file and
// behind whatever link, in each way of opening and by the doctor, and whether or not there
// is a file.
func TestOpen_FolderThatCannotBeEntered(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	top := t.TempDir()
	shut, links := filepath.Join(top, "shut"), filepath.Join(top, "links")
	deep := filepath.Join(shut, "in", "deep")
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.Mkdir(links, 0o700)); err != nil {
		t.Fatal(err)
	}
	paths := []string{
		filepath.Join(shut, "jobs.db"), filepath.Join(deep, "jobs.db"),
		filepath.Join(links, "folder", "jobs.db"), filepath.Join(links, "relative", "jobs.db"), filepath.Join(links, "jobs.db"),
	}
	err := errors.Join(os.Symlink(deep, filepath.Join(links, "folder")), os.Symlink("../shut/in", filepath.Join(links, "relative")), os.Symlink(paths[1], paths[4]))
	if err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{false, true} {
		if there {
			for _, path := range []string{paths[0], paths[1], filepath.Join(shut, "in", "jobs.db")} {
				s, err := sqlite.Open(path, nil)
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Chmod(shut, 0o600); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("enter the folder %s (mode drw-------, owner %d)", shut, os.Geteuid())
		for _, path := range paths {
			for _, o := range []*sqlite.Options{{}, {ReadOnly: true}, {Existing: true}} {
				_, err := sqlite.Open(path, o)
				wantUnreadable(t, fmt.Sprintf("%s, %+v", path, o), err, want)
			}
			_, err := sqlite.Examine(context.Background(), path, false, t0)
			wantUnreadable(t, path+", the doctor", err, want)
		}
		if err := os.Chmod(shut, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// wantUnreadable wants a permission error with what this user cannot do, and the remedy.
func wantUnreadable(t *testing.T, how string, err error, what string) {
	t.Helper()
	want := "this user cannot " + what + ": run this as its owner, or have the owner allow it (chmod)"
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, storage.ErrIO) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want a permission error with %q", how, err, want)
	}
}

// The doctor names the file that this user cannot read, and the folder that cannot be listed.
func TestExamine_FileThatCannotBeRead(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	for _, end := range []string{"", "-wal", "folder"} {
		d := newDB(t, nil)
		s, shut, mode := d.open(), d.path+end, os.FileMode(0o200)
		if end == "folder" {
			shut, mode = filepath.Dir(d.path), os.ModeDir|0o300
		}
		if err := os.Chmod(shut, mode.Perm()); err != nil {
			t.Fatal(err)
		}
		found, err := sqlite.Examine(context.Background(), d.path, false, t0)
		what := fmt.Sprintf("read %s (mode %v, owner %d)", shut, mode, os.Geteuid())
		switch at := slices.IndexFunc(found, func(f sqlite.Finding) bool { return f.Check == "reading" }); {
		case end != "-wal":
			wantUnreadable(t, end, err, what)
		case err != nil || at < 0:
			t.Errorf("%s: the doctor says %+v, %v", end, found, err)
		case !strings.Contains(found[at].Text, what) || strings.Contains(found[at].Remedy, "nobody else"):
			t.Errorf("%s: the doctor says %+v, want that this user cannot %s", end, found[at], what)
		}
		if err := errors.Join(os.Chmod(shut, 0o700), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A file that nobody needs any more is no reason for Close to fail.
//
//errand:shows a folder that cannot be written
func TestClose_FolderThatCannotBeWritten(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	said := make(chan string, 10)
	d := newDB(t, &sqlite.Options{Logger: slog.New(listener(func(_ slog.Level, text string) { said <- text }))})
	s := d.open()
	enqueue(t, s, "a", 1)
	lease(t, s, 1, "a")
	dir := filepath.Dir(d.path)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	err := s.Close()
	if e := os.Chmod(dir, 0o700); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Errorf("Close: %v", err)
	}
	close(said)
	all := ""
	for text := range said {
		all += text
	}
	if !strings.Contains(all, "cannot be deleted") {
		t.Errorf("the log has %q, want the file that is left", all)
	}
}

// A folder in which no files can be made beside the database is read-only.
//
//errand:shows a folder that cannot be written | | Open returns ErrReadOnly with the folder and its mode, for a new and for an existing database, and the doctor reports it; Close returns no error about the file that it cannot delete
func TestOpen_FolderThatCannotBeWritten(t *testing.T) {
	if !asAnybody(t) {
		return
	}
	for name, without := range map[string][]string{
		"new": {"", "-turn", "-ballast"}, "without its turn": {"-turn"}, "with its turn": nil,
	} {
		d := newDB(t, nil)
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range without {
			if err := os.Remove(d.path + suffix); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Dir(d.path)
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Open(d.path, nil)
		if !errors.Is(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), "folder "+dir+" (mode dr-x------, owner ") {
			t.Errorf("%s: %v, want ErrReadOnly with its folder", name, err)
		}
		if name != "new" {
			wantAccess(t, d.path, "chmod u+wx "+dir)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// A user whom the list of permissions of the database names may have made the
// files beside it, whatever his group; without such a list a stranger has.
//
//errand:shows links and devices beside the database
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

// A second descriptor of the index that can write is one of another SQLite library: both would write
// at a time. One that only reads is not.
func TestOpen_AnotherLibrary(t *testing.T) {
	const want = "another SQLite library in this process has opened the file"
	refused := func(how string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrUnsupportedDB: %s", how, err, want)
		}
	}
	d := newDB(t, nil)
	s := d.open()
	index := func(how int) *os.File {
		t.Helper()
		f, err := os.OpenFile(d.path+"-shm", how, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	reads := index(os.O_RDONLY)
	if err := d.open().Close(); err != nil {
		t.Errorf("beside one who reads: %v", err)
	}
	writes := index(os.O_RDWR)
	_, err := sqlite.Open(d.path, nil)
	refused("Open", err)
	_, err = sqlite.New(appDB(t, "file:"+d.path), nil)
	refused("New", err)
	s.LookAnew()
	if _, err = s.Enqueue(t.Context(), t0, one()); !errors.Is(err, storage.ErrClosed) { // else another call has looked first
		refused("Enqueue", err)
	}
	if _, err := s.Enqueue(t.Context(), t0, one()); !errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), want) {
		t.Errorf("and again: %v, want ErrClosed after: %s", err, want)
	}
	if err := errors.Join(reads.Close(), writes.Close()); err != nil {
		t.Error(err)
	}
}

// SQLite makes the index of its log shorter only if nobody else has it open. So another library has,
// if a page of it is gone.
func TestStore_IndexCutOff(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	if err := os.Truncate(d.path+"-shm", 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(t.Context(), t0, one())
	if want := "(8714): its index was cut off: another SQLite library in this process has opened the file"; !errors.Is(err, storage.ErrIO) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrIO: %s", err, want)
	}
}
