//go:build unix && !openbsd

package host

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Notes are slots in a file, each with a token and a time. They are written
// through mapped memory: when the process dies, the file has what was written.
// Notes do not outlive the machine, and are in its byte order. Two system calls
// instead would cost a short job a quarter of its time. A Notes is for one
// goroutine at a time.
type Notes struct {
	File  *os.File
	pages [][]byte
}

// Start writes a token and a time, such as when its handler was called.
func (n *Notes) Start(slot, token, at int64) error {
	return n.put(slot, func(token64, at64 *int64) {
		atomic.StoreInt64(token64, 0) // so that the token never has the time of another one
		atomic.StoreInt64(at64, at)
		atomic.StoreInt64(token64, token<<1)
	})
}

// End marks the token of a slot as ended.
func (n *Notes) End(slot, token int64) error {
	return n.put(slot, func(token64, _ *int64) { atomic.StoreInt64(token64, token<<1|1) })
}

// put calls f with the two words of a slot. The page may have no memory, because
// the file was truncated, or because its file system copies pages and is full.
// Then the kernel sends a signal, which the runtime makes a panic, and put an
// error.
func (n *Notes) put(slot int64, f func(token, at *int64)) (err error) {
	size := int64(os.Getpagesize())
	page, at := slot*noteSize/size, slot*noteSize%size
	if err := n.grow(int(page) + 1); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: instance file %s: %v", syscall.EIO, n.File.Name(), r)
		}
	}()
	words := n.pages[page][at : at+noteSize]
	f((*int64)(unsafe.Pointer(&words[0])), (*int64)(unsafe.Pointer(&words[8])))
	return nil
}

// grow maps pages until there are count of them. It writes each page first, which
// fails if there is no room for the page.
func (n *Notes) grow(count int) error {
	size := os.Getpagesize()
	for len(n.pages) < count {
		at := int64(len(n.pages) * size)
		if _, err := n.File.WriteAt(make([]byte, size), at); err != nil {
			return err
		}
		page, err := syscall.Mmap(int(n.File.Fd()), at, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("errand: map %s: %w", n.File.Name(), err)
		}
		n.pages = append(n.pages, page)
	}
	return nil
}

// Close unmaps the memory. It comes before the file is closed: a mapped file
// keeps its lock.
func (n *Notes) Close() error {
	var errs []error
	for _, page := range n.pages {
		errs = append(errs, syscall.Munmap(page))
	}
	n.pages = nil
	return errors.Join(errs...)
}
