//go:build unix && !openbsd

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/errandq/errand/storage"
)

// notes are written to the file of an instance through memory that it is mapped
// to: what is there when the process dies is in the file. Two system calls more
// would cost a short job a quarter of its time.
type notes struct {
	file  *os.File
	pages [][]byte
}

// start notes in a slot when the handler of a token was called.
func (n *notes) start(slot, token, at int64) error {
	return n.put(slot, func(token64, at64 *int64) {
		atomic.StoreInt64(token64, 0) // so that it is never there with the time of another
		atomic.StoreInt64(at64, at)
		atomic.StoreInt64(token64, token<<1)
	})
}

// end notes in its slot that the handler has returned, or is being stopped.
func (n *notes) end(slot, token int64) error {
	return n.put(slot, func(token64, _ *int64) { atomic.StoreInt64(token64, token<<1|1) })
}

// put calls f with the words of a slot. Of a page that cannot be had, because
// the file was cut off or its file system makes copies and is full, the kernel
// makes a signal, the runtime a panic, and we an error.
func (n *notes) put(slot int64, f func(token, at *int64)) (err error) {
	size := int64(os.Getpagesize())
	page, at := slot*noteSize/size, slot*noteSize%size
	if err := n.grow(int(page) + 1); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: instance file %s: %v", storage.ErrIO, n.file.Name(), r)
		}
	}()
	words := n.pages[page][at : at+noteSize]
	f((*int64)(unsafe.Pointer(&words[0])), (*int64)(unsafe.Pointer(&words[8])))
	return nil
}

// grow maps so many pages. They are written first, which finds out whether
// there is room for them.
func (n *notes) grow(count int) error {
	size := os.Getpagesize()
	for len(n.pages) < count {
		at := int64(len(n.pages) * size)
		if _, err := n.file.WriteAt(make([]byte, size), at); err != nil {
			return err
		}
		page, err := syscall.Mmap(int(n.file.Fd()), at, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("errand: instance file %s: %w", n.file.Name(), err)
		}
		n.pages = append(n.pages, page)
	}
	return nil
}

// close comes before the file is closed: as long as it is mapped it is open, and
// so its lock is held.
func (n *notes) close() error {
	var errs []error
	for _, page := range n.pages {
		errs = append(errs, syscall.Munmap(page))
	}
	n.pages = nil
	return errors.Join(errs...)
}
