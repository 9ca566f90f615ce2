package rules

import "github.com/errandq/errand/storage"

// RunNow decides about a job of [Need.Jobs] that is to run now if it is scheduled, and if which takes it
// or is nil. failed says whether the last attempt failed, see [storage.Waiting]. RunNow reports whether
// the job is live, and whether it goes. Its group is to be settled.
func (t *Tx) RunNow(id storage.ID, which *storage.Waiting, failed bool) (live, goes bool, err error) {
	r, err := t.live(id.Key())
	if err != nil || r == nil || r.Is.id() != id {
		return false, false, err
	}
	is := &r.Is
	if is.State != storage.Scheduled || which != nil && !takes(which, is.Attempt, failed) {
		return true, false, nil
	}
	is.State, is.Due = storage.Ready, min(is.Due, t.now.UnixMicro())
	if is.Group == "" || is.Role == Placed {
		return true, true, nil
	}
	g, err := t.group(is.Group)
	if err != nil {
		return true, false, err
	}
	// It has its turn among those that wait.
	is.block()
	is.Role = Waits
	t.later(g, NoRole, is.member())
	return true, true, nil
}

func takes(which *storage.Waiting, attempt int, failed bool) bool {
	if attempt == 0 {
		return which.First
	}
	return !which.Failed || failed
}
