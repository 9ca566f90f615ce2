package rules

import (
	"errors"
	"time"

	"github.com/errandq/errand/storage"
)

// Rows is what a rule reads in one write transaction, as it is when the rule asks.
//
// A rule first says by Load all that it may ask for. A store whose transactions overlap locks
// that, keys before groups before jobs and each in the order of names, and reads it in one
// round trip. A store with one writer has nothing to lock, and may read when it is asked. The
// other methods return what was loaded, and [ErrNotLoaded] for anything else. If a rule asks
// again for rows, they are as they were decided to be: a store has written that, and a Tx knows it.
type Rows interface {
	Load(n Need) error
	// Group returns what Reads of the group says is needed for Settle with anew.
	Group(name string, anew bool) (Group, error)
	// Key returns a unique key for a job with a Conflict, which may be nil.
	Key(name string, c *storage.Conflict) (*Key, error)
}

// ErrNotLoaded says that a rule has asked for what it has not loaded, or decided about it.
var ErrNotLoaded = errors.New("errand: a rule is about rows that it has not loaded")

// Delta is what a rule answers with: sets of rows, each with what becomes of them. Whoever writes
// it knows what else belongs to that: what is counted, who is told. A row is there once at most.
// The zero value is empty.
type Delta struct {
	Pass  []string // groups of which each member that Blocks has no role any more
	Leave []int64  // scheduled members that leave their places, and have no role
	Block []Member // ready or scheduled ones that lose their places, and wait
	LetIn []LetIn  // jobs that are blocked, and wait no longer
	Keys  []*Key   // unique keys that have changed
}

// LetIn has a blocked job be ready if it was due when it came to wait, else scheduled.
type LetIn struct {
	Job int64
	At  int64 // if it is due by then, it is due at this time; 0: its due time stays
	As  Role  // NoRole: as it was
}

// ClaimKey decides about a new job with a unique key, which is due at a time.
func ClaimKey(r Rows, now time.Time, j *storage.NewJob, claimant Keeper, due int64, d *Delta) (Claim, error) {
	k, err := loadKey(r, NeedKey{j.Unique, j.Conflict})
	if err != nil {
		return Claim{}, err
	}
	c := k.claim(now, j, claimant, due)
	if c.changed {
		d.Keys = append(d.Keys, k)
	}
	return c, nil
}

// ReleaseKey has a job that ends at now leave its unique key, and lets in the one behind it. kept
// says whether the job stays in a table.
func ReleaseKey(r Rows, name string, job, now int64, kept bool, d *Delta) error {
	k, err := loadKey(r, NeedKey{Name: name})
	if err != nil {
		return err
	}
	if heir := k.release(job, now, kept); heir != 0 {
		d.LetIn = append(d.LetIn, LetIn{Job: heir})
	}
	d.Keys = append(d.Keys, k)
	return nil
}

// ForgoKey has a job that is deleted to make room, and whose handler was never called, hold its
// unique key no longer than it lives: what UniqueFor counts has not taken place.
func ForgoKey(r Rows, name string, job int64, d *Delta) error {
	k, err := loadKey(r, NeedKey{Name: name})
	if err != nil || !k.forgo(job) {
		return err
	}
	d.Keys = append(d.Keys, k)
	return nil
}

func loadKey(r Rows, n NeedKey) (*Key, error) {
	if err := r.Load(Need{Keys: []NeedKey{n}}); err != nil {
		return nil, err
	}
	return r.Key(n.Name, n.Conflict)
}
