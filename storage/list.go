package storage

import "context"

// Page is a part of a list of jobs.
//
// A list whose filter has a Group, Tag, CreatedFrom or CreatedBefore is in the order of keys,
// the highest first. If the clock was set back, CreatedFrom and CreatedBefore may leave
// out jobs with an earlier time than one with a lower key. Any other list is in the order
// of states, and jobs of one state are in this order:
//
//	running          the highest key first
//	ready            by queue and kind; those of a lane as they are leased in the order Oldest
//	scheduled        the earliest due first, then the lowest key
//	blocked          by queue and group; those of a group the lowest key first
//	dead             the latest end first, then the highest key
//	finished         the highest key first, of all three states together
//
// A job that stays as it is while a list is read is on one page of it.
type Page struct {
	// Jobs come without headers, history, and what attempts have kept, see [Kept], and without
	// args unless the filter has Args.
	Jobs []Record
	// Next is where the next page begins, in a form that only the Store knows. It is
	// empty if no job is left.
	Next string
	// Looked is how many jobs were looked at, whether or not they match. If many were, a
	// page with a Next may have fewer jobs than its limit, or none.
	Looked int
}

// ByKey reports whether a list of jobs that match f is in the order of keys.
func (f *Filter) ByKey() bool {
	return f.Group != "" || f.Tag != "" || !f.CreatedFrom.IsZero() || !f.CreatedBefore.IsZero()
}

// Glancer is implemented by a Store that reads many live jobs at once.
type Glancer interface {
	// Glance returns the records of those of the jobs that are live, in any order, without args,
	// headers, checkpoint, history and the time of the start.
	Glance(ctx context.Context, ids []ID) ([]Record, error)
}
