package storage

// Follows returns the jobs that are enqueued if the answer to f is r.
func (f *Finish) Follows(r ItemResult) []NewJob {
	if r == Spent {
		f, r = f.Spent, Applied
	}
	if r != Applied || f.Outcome != OutcomeDone && f.Outcome != OutcomeDead {
		return nil
	}
	return f.Then
}

// ParentTag returns the tag of the jobs that were enqueued with the end of another one.
func ParentTag(id ID) string { return "errand.parent:" + id.String() }

// ImportTag returns the tag of a job that was imported: id is its ID in the queue that it comes
// from. It goes with the job, so that it says what was imported before as long as the job is there.
func ImportTag(id ID) string { return "errand.origin:" + id.String() }
