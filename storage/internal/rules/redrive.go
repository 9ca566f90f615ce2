package rules

import "github.com/errandq/errand/storage"

// Redrive decides about a dead job that is to be put back as is says, ready and in its group: was is
// where it died, from the group whose members it may block. It reports whether the job goes: it stays
// dead if another one has its unique key. Of e, which may be nil, it looks at what changes of the work.
// Its groups are to be settled.
func (t *Tx) Redrive(was Standing, from string, is Job, unique string, e *Edit) (goes bool, err error) {
	r := Row{Was: was, Is: is, work: true}
	if unique != "" {
		c, err := t.claim(&r, &storage.NewJob{Unique: unique})
		if err != nil || c.Admission < Follow {
			return false, err
		}
	}
	if was.Role == Blocks {
		if err := t.depart(from, Blocks, is.ID); err != nil {
			return false, err
		}
	}
	if e != nil {
		r.amend(e)
	}
	row := t.rows.add(is.ID)
	if *row = r; is.Group == "" {
		return true, nil
	}
	g, err := t.group(is.Group)
	if err != nil {
		return false, err
	}
	// It comes before members that died after it, or were enqueued later: so it waits until its
	// group is settled.
	row.Is.block()
	row.Is.Role = Waits
	t.later(g, NoRole, row.Is.member())
	return true, nil
}
