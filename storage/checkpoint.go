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

// Kept is what attempts have kept of a job.
type Kept struct {
	// Checkpoint is where a job has got to that is live or dead.
	Checkpoint []byte
	// Progress is how far the job was at its last checkpoint, or at its end. It is nil if
	// that is not known. It goes with the checkpoint of a job that is to begin from the
	// start.
	Progress *Progress
	// Result is what a job that is done has brought.
	Result []byte
}

// Past is what a lease knows of its job from before it.
type Past struct {
	// Previous is the token of the job's last lease before this one, even if that lease was
	// returned. It is zero for the first lease.
	Previous int64
	// Checkpoint is what Checkpoint has kept; nil: nothing.
	Checkpoint []byte
	// Redriven is true if the job was dead once, and redriven.
	Redriven bool
	// Origin is that of the job, as its tags say, see [OriginOf].
	Origin Origin
}

// Bytes is about how many bytes f brings beside what a job has anyway: its texts, its result, its
// progress, and the jobs that follow.
func (f *Finish) Bytes() int {
	n := len(f.Error) + len(f.Policy) + len(f.Result)
	if f.Failure != nil {
		n += len(f.Failure.Error) + len(f.Failure.Stack)
	}
	if f.Progress != nil {
		n += len(f.Progress.Note)
	}
	for i := range f.Then {
		n += len(f.Then[i].Args) + len(f.Then[i].Headers)
	}
	if f.Spent != nil {
		n = max(n, f.Spent.Bytes())
	}
	return n
}
