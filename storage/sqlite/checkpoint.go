package sqlite

import (
	"context"
	"time"

	lib "modernc.org/sqlite/lib"
)

const (
	sqlLogLength  = `PRAGMA wal_checkpoint(NOOP)`
	sqlCheckpoint = `PRAGMA wal_checkpoint(PASSIVE)`

	// checkpointAt is how many pages of the log make a checkpoint, between two
	// transactions.
	checkpointAt = 4000
	// checkpointIdle is the pause in which whatever there is goes over.
	checkpointIdle = time.Second
	// warnAt is how many pages of the log are more than there should ever be.
	warnAt = 4 * checkpointAt
)

// checkpointer moves the pages of the write-ahead log into the database. SQLite
// would do so by itself, in the middle of a commit, and pass over errors: after
// a failed fsync it would try again, succeed without having written, and throw
// the log away. Here nobody waits for it who need not, and an error ends the
// store as that of a commit does.
type checkpointer struct {
	*Store
	db     asker
	length int  // of the log when last looked at
	next   int  // length that is worth another try
	warned bool // of a log that is too long
}

// run does a checkpoint if so many pages wait for it.
func (c *checkpointer) run(pages int) {
	var busy, length, moved int
	if c.usable() != nil || c.db.row(sqlLogLength, nil, &busy, &length, &moved) != nil || length-moved < pages {
		return
	}
	if length < c.length {
		c.next = 0 // begun anew
	}
	c.length = length
	if pages == checkpointAt {
		if length < c.next {
			return // the last one could not finish, and this one could not either
		}
		// While others write it would never come to the end of the log.
		if c.turn.take(context.Background(), c.opts.BusyTimeout) != nil {
			return
		}
		defer c.turn.give()
	}
	if err := c.db.row(sqlCheckpoint, nil, &busy, &length, &moved); err != nil {
		if isCode(err, lib.SQLITE_IOERR) {
			c.fail(err, "checkpoint")
		} else {
			c.opts.Logger.Warn("errand: checkpoint", "error", translate(err))
		}
		return
	}
	c.next = 0
	if moved < length { // somebody reads what is older, or does a checkpoint himself
		c.next = length + checkpointAt/4
	}
	if long := moved < length && length >= warnAt; long != c.warned {
		c.warned = long
		if long {
			c.opts.Logger.Warn("errand: the write-ahead log grows: somebody has been reading for long, and keeps it from being emptied",
				"pages", length)
		}
	}
}
