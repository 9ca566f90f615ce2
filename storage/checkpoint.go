package storage

import (
	"context"
	"time"
)

// Checkpointer keeps where jobs have got to.
type Checkpointer interface {
	// Checkpoint keeps the data of a leased job, in place of what was kept before. The next
	// lease of the job has it, whatever ends this one, until the job is done, cancelled or
	// expired, [Edit].Args change its args, or another job replaces it, see [Conflict]. A dead
	// job keeps it, as does one that is redriven, unless [Selection].FromStart drops it.
	//
	// The crashes of the job become zero if the data differ from what was kept before, at most
	// [CheckpointResets] times in the life of the job.
	//
	// The answer is [Applied], or one of the other answers of LookTx, see [TxEnqueuer]: then
	// nothing was kept. It is [Lost] for a lease that another Store holds.
	Checkpoint(ctx context.Context, c Checkpoint) (ItemResult, error)
	// States returns the states of jobs as of one moment, in the order of ids; empty for one
	// that there is not.
	States(ctx context.Context, ids []ID) ([]State, error)
}

// CheckpointResets is how often checkpoints set the crashes of one job to zero.
const CheckpointResets = 100

// Checkpoint is where the job of a lease has got to.
type Checkpoint struct {
	Lease
	Data []byte // not empty
	// Progress, if not nil, is kept in place of what was kept before.
	Progress *Progress
}

// Progress is how far a job has got.
type Progress struct {
	Done  int64     `json:"done"`
	Total int64     `json:"total,omitempty"` // 0: not known
	Note  string    `json:"note,omitempty"`
	At    time.Time `json:"at"` // when the handler said so
}
