package relay

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// The rows of a device are entries of these classes.
const (
	queueClass   = "relay-queue"   // by queue: queueDoc
	outClass     = "relay-out"     // by queue and number of the stream: outDoc
	keptClass    = "relay-kept"    // by job: keptDoc
	sentClass    = "relay-sent"    // by stream and n: the IDs of the jobs of that send that are done
	missingClass = "relay-missing" // by stream and n: missingDoc
)

// queueDoc is what is written of a relayed queue at the first start.
type queueDoc struct {
	Device  string `json:"device"`
	Server  string `json:"server"`
	Streams int    `json:"streams"`
}

type outDoc struct {
	ID    wire.ID `json:"id"`
	N     uint64  `json:"n,omitempty"`
	Token wire.ID `json:"token,omitzero"`
	Held  bool    `json:"held,omitempty"`
	// Owner is random. Whoever becomes the owner writes it, and the row has another revision then.
	Owner wire.ID `json:"owner"`
}

type keptDoc struct {
	Outcome ratchet.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Attempt int             `json:"attempt,omitempty"` // in which it was refused
	Queue   string          `json:"queue"`
	Stream  wire.ID         `json:"stream"`
	N       uint64          `json:"n"`
}

type missingDoc struct {
	Queue    string `json:"queue"`
	After    uint64 `json:"after"` // the n of S
	Before   uint64 `json:"before"`
	Jobs     []byte `json:"jobs,omitempty"`     // of S
	Outcomes []byte `json:"outcomes,omitempty"` // of these
	Unlisted bool   `json:"unlisted,omitempty"` // sends are not listed, see Options.Keep
}

// outRow is the row of a stream as it was read or written last.
type outRow struct {
	ratchet.Device
	ID       ratchet.ID
	revision int64
	at       time.Time // when it was written
}

// outRows reads and writes the rows of a device.
type outRows struct{ door.Topics[errand.NewJob] }

func outName(queue string, index int) string { return fmt.Sprintf("%s/%02d", queue, index) }

func docOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and texts
	}
	return b
}

// begin writes the rows at the first start, and compares them later.
func (r outRows) begin(ctx context.Context, o *Options) error {
	want := queueDoc{o.Device, o.Server, o.Streams}
	e, err := r.Entry(ctx, queueClass, o.Queue)
	if errors.Is(err, errand.ErrNotFound) {
		entries := []storage.Entry{{Class: queueClass, Name: o.Queue, Doc: docOf(want)}}
		file := newID()
		for i := range o.Streams {
			file[len(file)-1] = byte(i) // a server sees by the others that streams are of one file
			entries = append(entries, storage.Entry{Class: outClass, Name: outName(o.Queue, i), Doc: docOf(outDoc{ID: wire.ID(file)})})
		}
		if _, err = r.PutEntries(ctx, entries); !errors.Is(err, errand.ErrStale) {
			return err
		}
		e, err = r.Entry(ctx, queueClass, o.Queue) // another process was first
	}
	if err != nil {
		return err
	}
	var was queueDoc
	if err := json.Unmarshal(e.Doc, &was); err != nil {
		return fmt.Errorf("errand: relay: row of queue %q: %w", o.Queue, err)
	}
	for _, f := range []struct {
		field   string
		was, is any
	}{{"device", was.Device, want.Device}, {"server", was.Server, want.Server}, {"streams", was.Streams, want.Streams}} {
		if f.was != f.is {
			return &errand.FieldError{Field: f.field, Value: f.is, Limit: fmt.Sprintf("must be %v, as in the file since the first start", f.was)}
		}
	}
	return nil
}

func (r outRows) read(ctx context.Context, queue string, index int) (outRow, error) {
	e, err := r.Entry(ctx, outClass, outName(queue, index))
	if err != nil {
		return outRow{}, fmt.Errorf("errand: relay: stream %d of queue %q: %w", index, queue, err)
	}
	var d outDoc
	if err := json.Unmarshal(e.Doc, &d); err != nil {
		return outRow{}, fmt.Errorf("%w: stream %d of relayed queue %q: %w", errand.ErrCorrupt, index, queue, err)
	}
	return outRow{ratchet.Device{N: d.N, Token: ratchet.Token(d.Token), Held: d.Held}, ratchet.ID(d.ID), e.Revision, e.UpdatedAt}, nil
}

// entry returns a row as it is written.
func (r outRow) entry(queue string, index int) storage.Entry {
	return storage.Entry{Class: outClass, Name: outName(queue, index), Revision: r.revision,
		Doc: docOf(outDoc{wire.ID(r.ID), r.N, wire.ID(r.Token), r.Held, wire.ID(newID())})}
}

// take makes the caller the owner of a stream. Whoever was it before can write the row no more.
func (r outRows) take(ctx context.Context, queue string, index int) (outRow, error) {
	row, err := r.read(ctx, queue, index)
	if err != nil {
		return row, err
	}
	row.revision, err = r.PutEntries(ctx, []storage.Entry{row.entry(queue, index)})
	return row, err
}

// owns reports whether the file still has the row as its owner has written it.
func (r outRows) owns(ctx context.Context, queue string, index int, row outRow) (bool, error) {
	now, err := r.read(ctx, queue, index)
	return now.revision == row.revision, err
}

const pageOfEntries = 1000

// each calls fn for all entries of a class.
func (r outRows) each(ctx context.Context, class string, fn func(storage.Entry) error) error {
	after := ""
	for {
		page, _, err := r.Entries(ctx, class, "", after, pageOfEntries)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
			after = e.Name
		}
		if len(page) < pageOfEntries {
			return nil
		}
	}
}

// settlement is what one commit of the device does.
type settlement struct {
	ratchet.Settlement
	row       outRow // after it
	careful   bool   // leases are looked at before
	finish    []*parcel
	kept      map[errand.ID]keptVerdict
	done      []storage.ID
	refused   map[*parcel]string
	pass      bool // a refused job does not keep back those behind it, which stay in hand
	cancelled []*parcel
	lacks     bool // jobs are missing on the server
}

// settle commits what follows from an answer: it ends the jobs in hand by their verdicts, keeps the
// verdicts on others, and writes the row.
func (s *stream) settle(ctx context.Context, x ratchet.Settlement) error {
	ctx = context.WithoutCancel(ctx) // an interruption ends a request, and no commit
	s.of.keeping.RLock()
	defer s.of.keeping.RUnlock()
	row := s.row
	row.Device = x.After
	if x.Renew {
		row.ID = newID()
	}
	if row == s.row && len(x.Verdicts) == 0 {
		if x.Missing.Before == 0 {
			return nil
		}
		if _, err := s.of.rows.Entry(ctx, missingClass, sentName(s.row.ID, x.Missing.Before)); !errors.Is(err, errand.ErrNotFound) {
			return err // it is written already
		}
	}
	hand := map[ratchet.ID]*parcel{}
	s.mu.Lock()
	for _, p := range s.waiting {
		hand[ratchet.ID(p.ID)] = p
	}
	s.mu.Unlock()
	for _, p := range s.sent {
		hand[ratchet.ID(p.ID)] = p
	}
	c := settlement{Settlement: x, row: row}
	for {
		err := s.of.queue.Tx(ctx, func(tx *sql.Tx) error { return s.commit(ctx, tx, &c, hand) })
		lost := errors.Is(err, errand.ErrLeaseLost) || errors.Is(err, errand.ErrCancelled) || errors.Is(err, errand.ErrFinished)
		if lost && !c.careful {
			c.careful = true
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	c.pass = len(c.refused) > 0 && s.of.passesDead(ctx)
	s.settled(&c, hand)
	return nil
}

// commit is the transaction of settle.
func (s *stream) commit(ctx context.Context, tx *sql.Tx, c *settlement, hand map[ratchet.ID]*parcel) error {
	f := s.of
	c.row.revision = s.row.revision // it may be called again
	c.finish, c.done, c.cancelled = nil, nil, nil
	c.kept, c.refused = map[errand.ID]keptVerdict{}, map[*parcel]string{}
	topics, err := door.TopicsTx[errand.NewJob](f.queue, tx)
	if err != nil {
		return err
	}
	for _, v := range c.Verdicts {
		p, place := hand[v.Job], ratchet.Waiting
		if p != nil {
			place = ratchet.Leased
		}
		if p != nil && c.careful {
			in, err := door.Within[errand.NewJob](p.Job, tx)
			if err != nil {
				return err
			}
			switch err := in.Held(ctx); {
			case errors.Is(err, errand.ErrCancelled):
				place = ratchet.Ended
			case errors.Is(err, errand.ErrLeaseLost), errors.Is(err, errand.ErrFinished):
				place = ratchet.Waiting
			case err != nil:
				return err
			}
		}
		kept := keptVerdict{keptDoc: keptDoc{v.Outcome, v.Reason, 0, f.options.Queue, wire.ID(s.row.ID), c.Of}}
		switch v.On(place) {
		case ratchet.Finish:
			c.finish = append(c.finish, p)
		case ratchet.Bury: // the verdict is kept until the job is dead
			kept.Attempt = p.Attempt
			c.refused[p] = v.Reason
			c.kept[errand.ID(v.Job)] = kept
		case ratchet.Keep:
			c.kept[errand.ID(v.Job)] = kept
		case ratchet.Name:
			c.cancelled = append(c.cancelled, p)
		}
		if v.Outcome == ratchet.Enqueued || v.Outcome == ratchet.Duplicate {
			c.done = append(c.done, storage.ID(v.Job))
		}
	}
	entries := []storage.Entry{c.row.entry(f.options.Queue, s.index)}
	if len(c.done) > 0 && f.options.Keep > 0 {
		entries = append(entries, storage.Entry{Class: sentClass, Name: sentName(s.row.ID, c.Of), Doc: idBytes(c.done)})
	}
	if m := c.Missing; m.Before > 0 {
		e, err := missingEntry(ctx, topics, missingDoc{Queue: f.options.Queue, Unlisted: f.options.Keep == 0}, s.row.ID, m)
		if err != nil {
			return err
		}
		entries, c.lacks = append(entries, e...), len(e) > 0
	}
	for id, v := range c.kept {
		f.mu.Lock()
		was := f.kept[id]
		f.mu.Unlock()
		entries = append(entries, storage.Entry{Class: keptClass, Name: id.String(), Revision: was.revision, Doc: docOf(v.keptDoc)})
	}
	for page := range slices.Chunk(entries, pageOfEntries) {
		revision, err := topics.PutEntries(ctx, page)
		if err != nil {
			return err
		}
		for _, e := range page {
			if e.Class == outClass {
				c.row.revision = revision
				continue
			}
			if id, err := errand.ParseID(e.Name); err == nil && e.Class == keptClass {
				v := c.kept[id]
				v.revision = revision
				c.kept[id] = v
			}
		}
	}
	var ends []door.Tx[errand.NewJob]
	for _, p := range c.finish {
		in, err := door.Within[errand.NewJob](p.Job, tx)
		if err != nil {
			return err
		}
		ends = append(ends, in)
	}
	if len(ends) == 0 {
		return nil
	}
	return ends[0].Complete(ctx, ends[1:]...)
}

// settled ends the way of the jobs whose verdicts were committed.
func (s *stream) settled(c *settlement, hand map[ratchet.ID]*parcel) {
	f := s.of
	s.row = c.row
	f.mu.Lock()
	for id, v := range c.kept {
		f.kept[id] = v
	}
	f.mu.Unlock()
	for _, p := range c.cancelled {
		f.log.Warn("errand: relay: a job was cancelled here, and is on the server", "job", p.ID, "kind", p.Kind, "queue", p.Queue)
	}
	passed := map[string]bool{} // groups
	for p := range c.refused {
		passed[p.Group] = c.pass && p.Group != ""
	}
	over, judged, failed := map[*parcel]bool{}, map[errand.ID]bool{}, []*parcel(nil)
	for _, v := range c.Verdicts {
		p := hand[v.Job]
		if p == nil { // or it has come since: then its verdict is kept
			continue
		}
		if v.Outcome == ratchet.Behind && passed[p.Group] {
			continue
		}
		judged[p.ID], over[p] = true, true
		if v.Outcome == ratchet.Enqueued || v.Outcome == ratchet.Duplicate {
			p.end(nil)
			continue
		}
		reason, refused := c.refused[p]
		if refused {
			p.end(errRefused(reason, c.pass))
		} else {
			p.end(door.ErrUntouched)
		}
		if !refused || !c.pass {
			failed = append(failed, p)
		}
	}
	gone := func(p *parcel) bool {
		if judged[p.ID] && !over[p] { // of a lease that the job has lost
			p.end(door.ErrUntouched)
		}
		return judged[p.ID]
	}
	s.sent = slices.DeleteFunc(s.sent, gone)
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, gone)
	s.mu.Unlock()
	s.turnBackBehind(failed) // those that were not sent with them
	if c.lacks {
		f.log.Error("errand: relay: the server was put back to an older copy of its file, and lacks jobs that were done here: errand relay missing lists them", "queue", f.options.Queue)
	}
}

// errRefused returns the error of a job that the server has refused. If pass, those behind the job do not wait for it.
func errRefused(reason string, pass bool) error {
	err := errand.Permanent(errors.New("errand: relay: the server has refused the job: " + reason))
	if pass {
		return door.Passed(err)
	}
	return err
}

// missingEntry returns the row of jobs that a server lacks, unless there is one, or it lacks none.
func missingEntry(ctx context.Context, topics door.Topics[errand.NewJob], d missingDoc, stream ratchet.ID, m ratchet.Missing) ([]storage.Entry, error) {
	name := sentName(stream, m.Before)
	_, err := topics.Entry(ctx, missingClass, name)
	if !errors.Is(err, errand.ErrNotFound) {
		return nil, err
	}
	d.After, d.Before = m.S.N, m.Before
	for _, v := range m.S.Verdicts {
		d.Jobs = append(d.Jobs, v.Job[:]...)
		d.Outcomes = append(d.Outcomes, byte(v.Outcome))
	}
	e := storage.Entry{Class: missingClass, Name: name, Doc: docOf(d)}
	l, err := outRows{topics}.lack(ctx, missingRow{e, d})
	if err != nil || len(l.Jobs) == 0 && l.From == 0 { // nothing came since, or it was sent again
		return nil, err
	}
	return []storage.Entry{e}, nil
}

// sweepSometimes sweeps once a minute at most.
func (f *forwarder) sweepSometimes() {
	f.mu.Lock()
	due := time.Since(f.swept) >= settleAfter
	if due {
		f.swept = time.Now()
	}
	f.mu.Unlock()
	if !due {
		return
	}
	if err := f.sweep(context.Background()); err != nil {
		f.log.Warn("errand: relay: what waits for nothing any more could not be deleted", "queue", f.options.Queue, "error", err)
	}
}

// sweep deletes what waits for nothing any more: verdicts on jobs that have ended, and lists of sends
// older than Keep.
func (f *forwarder) sweep(ctx context.Context) error {
	f.keeping.RLock()
	defer f.keeping.RUnlock()
	f.mu.Lock()
	kept := make(map[errand.ID]keptVerdict, len(f.kept))
	for id, v := range f.kept {
		kept[id] = v
	}
	f.mu.Unlock()
	for id, v := range kept {
		info, err := f.queue.Job(ctx, id)
		there := v.Outcome != ratchet.Refused
		switch {
		case errors.Is(err, errand.ErrNotFound), err == nil && info.State == errand.Done:
		case err != nil:
			return err
		case info.State == errand.Cancelled, info.State == errand.Expired:
			if there {
				f.log.Warn("errand: relay: a job has ended here as "+string(info.State)+", and is on the server", "job", id, "kind", info.Kind, "queue", info.Queue)
			}
		case info.State == errand.Dead && !there:
		default:
			continue
		}
		_, err = f.rows.PutEntries(ctx, []storage.Entry{{Class: keptClass, Name: id.String(), Revision: v.revision, Delete: true}})
		if err != nil && !errors.Is(err, errand.ErrStale) {
			return err
		}
		f.forgetKept(id)
	}
	return f.rows.dropSent(ctx, f.options.Queue, f.queue.Clock().Now.Add(-f.options.Keep))
}

// listsOf returns a function that reports whether the lists of a stream are those of a queue. Those of streams that
// were given up are nobody's by name: they are of the queue if no other is relayed, and else of none.
func (r outRows) listsOf(ctx context.Context, queue string) (own func(stream string) bool, err error) {
	alone, streams := true, map[string]bool{}
	err = r.each(ctx, queueClass, func(e storage.Entry) error {
		alone = alone && e.Name == queue
		return nil
	})
	if err != nil || alone {
		return func(string) bool { return true }, err
	}
	err = r.each(ctx, outClass, func(e storage.Entry) error {
		var d outDoc
		if of, _ := ofStream(e.Name); of != queue {
			return nil
		} else if err := json.Unmarshal(e.Doc, &d); err != nil {
			return fmt.Errorf("%w: stream %q: %w", errand.ErrCorrupt, e.Name, err)
		}
		streams[hex.EncodeToString(d.ID[:])] = true
		return nil
	})
	return func(stream string) bool { return streams[stream] }, err
}

// dropSent deletes lists of sends of a queue that were written before a time. The last of a stream stays as an empty
// one, whose own time does not count: so it is known up to which n they are gone.
func (r outRows) dropSent(ctx context.Context, queue string, before time.Time) error {
	own, err := r.listsOf(ctx, queue)
	if err != nil {
		return err
	}
	var old []storage.Entry
	drop := func() error {
		if len(old) == 0 || len(old) == 1 && len(old[0].Doc) == 0 {
			old = nil
			return nil
		}
		last := &old[len(old)-1]
		for i := range old[:len(old)-1] {
			old[i].Delete = true
		}
		last.Doc = []byte{}
		for page := range slices.Chunk(old, pageOfEntries) {
			if _, err := r.PutEntries(ctx, page); err != nil && !errors.Is(err, errand.ErrStale) {
				return err
			}
		}
		old = nil
		return nil
	}
	after := ""
	for {
		page, _, err := r.Entries(ctx, sentClass, "", after, 50)
		if err != nil {
			return err
		}
		for _, e := range page {
			stream, _, _ := strings.Cut(e.Name, "/")
			if len(old) > 0 && !strings.HasPrefix(old[0].Name, stream+"/") {
				if err := drop(); err != nil {
					return err
				}
			}
			if after = e.Name; !own(stream) || len(e.Doc) > 0 && !e.UpdatedAt.Before(before) {
				after = stream + "0" // what follows of this stream is younger, or not own; the next name after stream + "/"
				break
			}
			old = append(old, e)
		}
		if len(page) == 0 {
			return drop()
		}
	}
}
