package torture_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// cache is what a kernel's page cache knows of files whose sync has failed:
// that what is read from them is not what is on the disk.
type cache struct {
	dirty map[string][]extent // written since the last sync
	lost  map[string][]extent // dirty when a sync failed, and not written since
}

// extent is a part of a file.
type extent struct{ from, to uint64 }

func newCache() *cache { return &cache{map[string][]extent{}, map[string][]extent{}} }

// see follows a call, and has it fail if it is a sync that is to.
func (k *cache) see(c call, fail bool) change {
	switch c.name {
	case "pwrite64":
		e := extent{c.offset, c.offset + c.size}
		k.dirty[c.path] = append(k.dirty[c.path], e)
		k.lost[c.path] = without(k.lost[c.path], e)
	case "ftruncate":
		e := extent{c.size, ^uint64(0)}
		k.dirty[c.path], k.lost[c.path] = without(k.dirty[c.path], e), without(k.lost[c.path], e)
	case "unlink", "unlinkat":
		delete(k.dirty, c.path)
		delete(k.lost, c.path)
	case "fsync", "fdatasync":
		if fail {
			k.lost[c.path] = append(k.lost[c.path], k.dirty[c.path]...)
		}
		delete(k.dirty, c.path)
		if fail {
			return change{errno: syscall.EIO}
		}
	}
	return change{}
}

// without returns what is left of extents outside of e.
func without(all []extent, e extent) (out []extent) {
	for _, x := range all {
		for _, part := range []extent{{x.from, min(x.to, e.from)}, {max(x.from, e.to), x.to}} {
			if part.from < part.to {
				out = append(out, part)
			}
		}
	}
	return out
}

// reveal makes the file what the disk has: zeros where a write was lost.
func (k *cache) reveal(t *testing.T) {
	t.Helper()
	for path, all := range k.lost {
		if len(all) == 0 {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		for _, e := range all {
			if size := uint64(info.Size()); err == nil && e.from < size {
				_, err = f.WriteAt(make([]byte, min(e.to, size)-e.from), int64(e.from))
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func (k *cache) String() string {
	var out []string
	for path, all := range k.lost {
		bytes := uint64(0)
		for _, e := range all {
			bytes += e.to - e.from
		}
		if bytes > 0 {
			out = append(out, fmt.Sprintf("%d bytes of %s from %d on", bytes, filepath.Base(path), all[0].from))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
