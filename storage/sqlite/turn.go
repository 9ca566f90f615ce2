package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// turn decides who writes next: first among the goroutines of the process,
// then among processes by a lock on a file. SQLite's own lock would do without
// it, but its waiters sleep and ask again, and the busiest process would win.
// The turn is about fairness only: safety is SQLite's.
type turn struct {
	mine   chan struct{} // holds a value while a goroutine has the turn
	file   *os.File
	alone  bool    // the lock on file is kept between turns
	queued *queued // of an earlier take, whose system call may still wait
}

// queued is a system call that waits for the lock on the file. It cannot be
// called back: who gives up leaves it, and who comes next takes it over.
type queued struct {
	state atomic.Int32
	got   chan error    // wanted: the result
	gone  chan struct{} // left: closed once the lock was given back
}

const (
	wanted = iota // somebody waits for got
	left          // nobody does
	over          // the call has returned
)

func newTurn(path string, db os.FileInfo) (*turn, error) {
	f, err := openBeside(path+"-turn", os.O_RDWR, db)
	if err != nil {
		return nil, fmt.Errorf("errand: turn file: %w", err)
	}
	return &turn{mine: make(chan struct{}, 1), file: f}, nil
}

// take waits for the turn, at most for limit.
func (t *turn) take(ctx context.Context, limit time.Duration) error {
	select {
	case t.mine <- struct{}{}:
		if done, err := t.try(); done {
			return err
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		return t.wait(ctx, limit, timer.C)
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t.mine <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%w: waited %v for a transaction of this process", storage.ErrBusy, limit)
	}
	if done, err := t.try(); done {
		return err
	}
	return t.wait(ctx, limit, timer.C)
}

// try takes the lock on the file if nobody has it, or if that is no matter.
func (t *turn) try() (done bool, err error) {
	if t.alone {
		return true, nil
	}
	if t.queued != nil {
		return false, nil
	}
	ok, err := tryLock(t.file)
	return ok || err != nil, t.taken(err)
}

// wait waits for the lock on the file.
func (t *turn) wait(ctx context.Context, limit time.Duration, timeout <-chan time.Time) error {
	q := t.queued
	if q == nil || !q.state.CompareAndSwap(left, wanted) {
		if q != nil {
			<-q.gone
		}
		q = &queued{got: make(chan error, 1), gone: make(chan struct{})}
		t.queued = q
		go q.wait(t.file)
	}
	var err error
	select {
	case err = <-q.got:
		t.queued = nil
		return t.taken(err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout:
		err = fmt.Errorf("%w: waited %v for another process to write", storage.ErrBusy, limit)
	}
	if !q.state.CompareAndSwap(wanted, left) { // it has come after all
		t.queued = nil
		return t.taken(<-q.got)
	}
	<-t.mine
	return err
}

// wait waits for the lock, and gives it back if nobody wants it any more.
func (q *queued) wait(f *os.File) {
	err := lock(f)
	for {
		if q.state.CompareAndSwap(wanted, over) {
			q.got <- err
			return
		}
		if q.state.CompareAndSwap(left, over) {
			if err == nil {
				_ = unlock(f) // cannot fail for a lock that is held
			}
			close(q.gone)
			return
		}
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

// close drops the lock. A system call that still waits for it must not lose its
// file to another one of the same number: then the file is closed when the call
// has returned.
func (t *turn) close() error {
	if t.queued == nil {
		return t.file.Close()
	}
	go func() {
		<-t.queued.gone
		_ = t.file.Close()
	}()
	return nil
}
