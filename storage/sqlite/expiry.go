package sqlite

import (
	"database/sql"
	"errors"

	"github.com/errandq/errand/storage"
)

// windows are until when a job may begin and may go on, see errand_option. Base is
// that of the epoch, 0 if the job has none or its clock is not believed yet.
type windows struct {
	Since        int64
	StartBy      int64 `db:"start_by"`
	StartWithin  int64 `db:"start_within"`
	Deadline     int64
	FinishWithin int64 `db:"finish_within"`
	Epoch        int64
	Base         int64
}

// begin has the windows count from at, or from due if that is later; of a date
// unless delayed. In an epoch they are lengths, which end after the delay too.
func (w *windows) begin(at, due int64, delayed bool, epoch int64) {
	from := max(at, due)
	w.Since, w.Epoch, w.Base = at, epoch, 0
	switch {
	case from > at && !delayed: // wherever the clock goes
		w.Since, w.Epoch = 0, 0
	case epoch != 0:
		from -= at
	}
	w.StartBy, w.Deadline = 0, 0
	if w.StartWithin > 0 {
		w.StartBy = from + w.StartWithin
	}
	if w.FinishWithin > 0 {
		w.Deadline = from + w.FinishWithin
	}
}

// times returns when the windows end, 0 for those that there are not. While the base of
// their epoch is not known they are taken to have begun when the job was enqueued.
func (w *windows) times() (startBy, deadline int64) {
	base := w.Base
	if w.Epoch != 0 && base == 0 {
		base = w.Since
	}
	if startBy = max(w.StartBy, -w.StartBy); startBy != 0 {
		startBy += base
	}
	if deadline = max(w.Deadline, -w.Deadline); deadline != 0 {
		deadline += base
	}
	return startBy, deadline
}

// show fills in what a record has of a row.
func (o *option) show(r *storage.Record) {
	startBy, deadline := o.times()
	r.StartBy, r.Deadline = timeOrZero(startBy), timeOrZero(deadline)
	if o.Flags&diesUnstarted != 0 {
		r.OnExpire = storage.Dead
	}
	r.Group = o.group()
}

// epoch returns the epoch of jobs that are enqueued while the clock is not believed.
func (t *tx) epoch() (epoch int64, err error) {
	if err = t.row(sqlEpoch, nil, &epoch); !errors.Is(err, sql.ErrNoRows) {
		return epoch, err
	}
	epoch = t.token()
	t.meta.gen++ // for all caches
	_, err = t.exec(sqlAddEpoch, epoch)
	return epoch, err
}
