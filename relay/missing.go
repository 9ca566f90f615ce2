package relay

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/storage"
)

// QueueInfo is what a device knows of a queue that is relayed.
type QueueInfo struct {
	Queue   string    `json:"queue"`
	Device  string    `json:"device"`
	Server  string    `json:"server"`
	Streams []OutInfo `json:"streams"`
	// Kept is how many outcomes are known of jobs that have not ended here.
	Kept int `json:"kept,omitempty"`
	// Missing is how many times the server was found to lack jobs, see [Missing].
	Missing int `json:"missing,omitempty"`
}

// OutInfo is what a device knows of a stream.
type OutInfo struct {
	ID string `json:"id"` // 32 hexadecimal digits
	// N is the number of the next request.
	N uint64 `json:"n"`
	// Held is true if the stream was held when it last asked.
	Held bool `json:"held,omitempty"`
	// LastSeen is when the server's last answer was written; zero if there was none.
	LastSeen time.Time `json:"last_seen,omitzero"`
}

// Queues returns the relayed queues of a file, sorted by name.
func Queues(ctx context.Context, q *errand.Queue) (all []QueueInfo, err error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	r := outRows{topics}
	err = r.each(ctx, queueClass, func(e storage.Entry) error {
		var d queueDoc
		if err := json.Unmarshal(e.Doc, &d); err != nil {
			return fmt.Errorf("%w: relayed queue %q: %w", errand.ErrCorrupt, e.Name, err)
		}
		info := QueueInfo{Queue: e.Name, Device: d.Device, Server: d.Server}
		for i := range d.Streams {
			row, err := r.read(ctx, e.Name, i)
			if err != nil {
				return err
			}
			out := OutInfo{ID: hex.EncodeToString(row.ID[:]), N: row.N, Held: row.Held}
			if row.N > 0 {
				out.LastSeen = row.at
			}
			info.Streams = append(info.Streams, out)
		}
		all = append(all, info)
		return nil
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	kept, err := r.kept(ctx)
	if err != nil {
		return nil, err
	}
	missing, err := r.missing(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, v := range kept {
			if v.Queue == all[i].Queue {
				all[i].Kept++
			}
		}
		for _, m := range missing {
			if m.doc.Queue == all[i].Queue {
				all[i].Missing++
			}
		}
	}
	return all, nil
}

// Lack is what a server lacks that was put back to an older copy of its file: jobs that it had taken,
// and that are done on the device.
type Lack struct {
	Queue  string `json:"queue"`
	Stream string `json:"stream"`
	// FoundAt is when the device learnt of it.
	FoundAt time.Time `json:"found_at"`
	// Jobs are those that the device still lists.
	Jobs []errand.ID `json:"jobs,omitempty"`
	// From and To are the numbers of the requests whose jobs are not listed, or not any more, see
	// [Options].Keep. Both are zero if there are none.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`

	name     string
	revision int64
	sends    []storage.Entry
	has      func(storage.Entry) []storage.ID
}

// Missing returns what servers lack, which [Resend] can send again.
func Missing(ctx context.Context, q *errand.Queue) (all []Lack, err error) {
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		return nil, err
	}
	r := outRows{topics}
	rows, err := r.missing(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range rows {
		l, err := r.lack(ctx, m)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// missingRow is a row of [missingClass].
type missingRow struct {
	entry storage.Entry
	doc   missingDoc
}

func (r outRows) missing(ctx context.Context) (all []missingRow, err error) {
	err = r.each(ctx, missingClass, func(e storage.Entry) error {
		m := missingRow{entry: e}
		if err := json.Unmarshal(e.Doc, &m.doc); err != nil {
			return fmt.Errorf("%w: missing jobs %q: %w", errand.ErrCorrupt, e.Name, err)
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// lack looks for the jobs of a row.
func (r outRows) lack(ctx context.Context, row missingRow) (Lack, error) {
	stream, _, _ := strings.Cut(row.entry.Name, "/")
	l := Lack{Queue: row.doc.Queue, Stream: stream, FoundAt: row.entry.CreatedAt, name: row.entry.Name, revision: row.entry.Revision}
	m := ratchet.Missing{S: ratchet.Taking{N: row.doc.After}, Before: row.doc.Before}
	for i, job := range idsOf(row.doc.Jobs) {
		m.S.Verdicts = append(m.S.Verdicts, ratchet.Verdict{Job: ratchet.ID(job), Outcome: ratchet.Outcome(row.doc.Outcomes[i])})
	}
	l.has = func(e storage.Entry) (ids []storage.ID) {
		for _, id := range idsOf(e.Doc) {
			if m.Has(ratchet.ID(id), numberOf(e.Name)) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	var id ratchet.ID
	if _, err := hex.Decode(id[:], []byte(stream)); err != nil {
		return l, fmt.Errorf("errand: relay: missing jobs %q: %w", row.entry.Name, err)
	}
	after, listed := sentName(id, max(m.S.N, 1)-1), false
	for {
		page, _, err := r.Entries(ctx, sentClass, "", after, 50)
		if err != nil {
			return l, err
		}
		for _, e := range page {
			after = e.Name
			if n := numberOf(e.Name); !strings.HasPrefix(e.Name, stream+"/") || n >= m.Before {
				page = nil
				break
			} else if n > m.S.N {
				if listed = true; len(e.Doc) == 0 {
					l.From, l.To = m.S.N+1, n
				}
			}
			if has := l.has(e); len(has) > 0 {
				l.Jobs, l.sends = append(l.Jobs, has...), append(l.sends, e)
			}
		}
		if len(page) < 50 {
			break
		}
	}
	if listed || m.Before <= m.S.N+1 {
		return l, nil
	}
	unlisted := row.doc.Unlisted
	if !unlisted { // a stream with lists before has had no jobs since
		page, _, err := r.Entries(ctx, sentClass, "", stream+"/", 1)
		if err != nil {
			return l, err
		}
		unlisted = len(page) == 0 || !strings.HasPrefix(page[0].Name, stream+"/")
	}
	if unlisted {
		l.From, l.To = m.S.N+1, m.Before-1
	}
	return l, nil
}

// numberOf returns the n in the name of a send.
func numberOf(name string) uint64 {
	_, n, _ := strings.Cut(name, "/")
	number, _ := strconv.ParseUint(n, 10, 64)
	return number
}

// Resend enqueues the jobs again that a server lacks, as far as the device still has them, as new jobs of their queue,
// and returns how many. Those that [Missing] lists are forgotten then. A job that is on the server
// all the same is done twice there.
func Resend(ctx context.Context, q *errand.Queue) (n int, err error) {
	lacks, err := Missing(ctx, q)
	if err != nil {
		return 0, err
	}
	for _, l := range lacks {
		for _, e := range l.sends {
			again, err := resend(ctx, q, &l, e)
			if n += again; err != nil {
				return n, err
			}
		}
		topics, err := door.Open[errand.NewJob](q)
		if err != nil {
			return n, err
		}
		if _, err := topics.PutEntries(ctx, []storage.Entry{{Class: missingClass, Name: l.name, Revision: l.revision, Delete: true}}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// resend enqueues the jobs of one send again, and forgets that it had them.
func resend(ctx context.Context, q *errand.Queue, l *Lack, e storage.Entry) (n int, err error) {
	var jobs []errand.NewJob
	for _, id := range l.has(e) {
		j, err := q.Job(ctx, id)
		if errors.Is(err, errand.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		o := &errand.JobOptions{Queue: l.Queue, Priority: j.Priority, Tags: j.Tags, Headers: j.Headers, Group: j.Group}
		if j.Unique != "" {
			o.Unique = &errand.Unique{Key: j.Unique}
		}
		jobs = append(jobs, errand.NewJob{Args: errand.RawArgs{OfKind: j.Kind, JSON: j.Args}, Options: o})
	}
	err = q.Tx(ctx, func(tx *sql.Tx) error {
		topics, err := door.TopicsTx[errand.NewJob](q, tx)
		if err != nil {
			return err
		}
		if _, err := topics.PutEntries(ctx, []storage.Entry{{Class: sentClass, Name: e.Name, Revision: e.Revision, Delete: true}}); err != nil {
			return err
		}
		_, err = q.EnqueueManyTx(ctx, tx, jobs)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(jobs), nil
}
