package sqlite

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/errandq/errand/storage"
)

// turn decides who writes next: first among the goroutines of the process,
// then among processes by a lock on a file. SQLite's own lock would do without
// it, but its waiters sleep and ask again, and the busiest process would win.
// The turn is about fairness only: safety is SQLite's.
type turn struct {
	mine    chan struct{} // holds a value while a goroutine has the turn
	file    *os.File
	alone   bool       // the lock on file is kept between turns
	waiting chan error // the lock that a take which timed out still waits for
}

func newTurn(path string) (*turn, error) {
	f, err := os.OpenFile(path+"-turn", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("errand: turn file: %w", err)
	}
	return &turn{mine: make(chan struct{}, 1), file: f}, nil
}

// take waits for the turn, at most for limit.
func (t *turn) take(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t.mine <- struct{}{}:
	case <-timer.C:
		return fmt.Errorf("%w: waited %v for a transaction of this process", storage.ErrBusy, limit)
	}
	if t.alone {
		return nil
	}
	if t.waiting == nil {
		ok, err := tryLock(t.file)
		if err != nil || ok {
			return t.taken(err)
		}
		t.waiting = make(chan error, 1)
		go func(f *os.File, got chan<- error) { got <- lock(f) }(t.file, t.waiting)
	}
	select {
	case err := <-t.waiting:
		t.waiting = nil
		return t.taken(err)
	case <-timer.C:
		<-t.mine
		return fmt.Errorf("%w: waited %v for another process to write", storage.ErrBusy, limit)
	}
}

// taken lets a file system without locks pass: the turn is a courtesy.
func (t *turn) taken(err error) error {
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		<-t.mine
		return fmt.Errorf("errand: turn file: %w", err)
	}
	return nil
}

func (t *turn) give() {
	if !t.alone {
		_ = unlock(t.file) // cannot fail for a lock that is held
	}
	<-t.mine
}

// keep gives the turn to others of this process only, until close.
func (t *turn) keep() {
	t.alone = true
	<-t.mine
}

// close drops the lock. A system call that still waits for it cannot be called
// back, and must not lose its file to another one of the same number: then the
// file is closed when the call returns.
func (t *turn) close() error {
	if t.waiting == nil {
		return t.file.Close()
	}
	go func() {
		if err := <-t.waiting; err == nil {
			_ = unlock(t.file)
		}
		_ = t.file.Close()
	}()
	return nil
}
