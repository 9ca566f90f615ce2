package storagetest

import (
	"errors"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

var (
	anyEntry   = rapid.SampledFrom([]string{"e", "f", "g"})
	anyFamily  = rapid.SampledFrom([]string{"", "p", "q"})
	anyMessage = rapid.SampledFrom([]string{"m", "n", "o"})
	anyTopic   = rapid.SampledFrom([]string{"t", "u"})
	anyCursor  = rapid.SampledFrom([]string{"", "1"})
)

// topics returns the parts of a pair that keep messages.
func (p *pair) topics() (real, model storage.Topics) {
	return p.real.(storage.Topics), p.model.(storage.Topics)
}

// stale returns a revision of each, mostly that which there is.
func (h *history) stale(t *rapid.T, real, model int64) (int64, int64) {
	if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
		return real + 1, model + 1
	}
	return real, model
}

func (h *history) putEntries(t *rapid.T) {
	real, model := h.pair(t).topics()
	var entries [2][]storage.Entry
	for _, name := range rapid.SliceOfNDistinct(anyEntry, 1, 2, rapid.ID).Draw(t, "entries") {
		e := storage.Entry{Class: rapid.SampledFrom([]string{"c", "d"}).Draw(t, "class"), Name: name, Family: anyFamily.Draw(t, "family"), Doc: []byte(anyTag.Draw(t, "doc"))}
		e.Delete = rapid.IntRange(0, 3).Draw(t, "delete") == 0
		was, err := real.Entry(h.ctx, e.Class, e.Name)
		is, wanted := model.Entry(h.ctx, e.Class, e.Name)
		h.sameError(err, wanted)
		r, m := h.stale(t, was.Revision, is.Revision)
		e.Revision = r
		entries[0] = append(entries[0], e)
		e.Revision = m
		entries[1] = append(entries[1], e)
	}
	_, err := real.PutEntries(h.ctx, h.now, entries[0])
	_, wanted := model.PutEntries(h.ctx, h.now, entries[1])
	h.sameError(err, wanted)
}

// publication draws a publication, for real and the model.
func (h *history) publication(t *rapid.T, p *pair) (real, model storage.Publication) {
	real.Message = storage.Message{ID: anyMessage.Draw(t, "message"), Topic: anyTopic.Draw(t, "topic"), Body: make([]byte, rapid.SampledFrom([]int{0, 1, 5000}).Draw(t, "body"))}
	if rapid.Bool().Draw(t, "kept") {
		real.Message.KeepUntil = h.now.Add(anyDue.Draw(t, "keep"))
	}
	if rapid.Bool().Draw(t, "attributes") {
		real.Message.Attributes = []byte("attributes")
	}
	if rapid.IntRange(0, 2).Draw(t, "dedup") == 0 {
		real.Dedup, real.DedupFor = anyTag.Draw(t, "dedup"), rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "for")
	}
	real.Existing = rapid.IntRange(0, 2).Draw(t, "existing") == 0
	if real.Existing {
		real.From, real.To, real.Dedup, real.DedupFor = anyCursor.Draw(t, "from"), anyCursor.Draw(t, "to"), "", 0
	}
	model = real
	if real.Family = anyFamily.Draw(t, "family"); real.Family != "" {
		a, b := p.topics()
		_, r, err := a.Entries(h.ctx, "c", real.Family, "", 1)
		h.must(err)
		_, m, err := b.Entries(h.ctx, "c", real.Family, "", 1)
		h.must(err)
		model.Family = real.Family
		real.Revision, model.Revision = h.stale(t, r, m)
	}
	for range rapid.IntRange(0, 2).Draw(t, "jobs") {
		n := h.newJob(t)
		real.Jobs, model.Jobs = append(real.Jobs, n), append(model.Jobs, n)
	}
	return real, model
}

func (h *history) publish(t *rapid.T) {
	p := h.pair(t)
	var publications [2][]storage.Publication
	for range rapid.IntRange(1, 3).Draw(t, "publications") {
		a, b := h.publication(t, p)
		publications[0], publications[1] = append(publications[0], a), append(publications[1], b)
	}
	a, b := p.topics()
	got, err := a.PublishMessages(h.ctx, h.now, publications[0])
	want, wanted := b.PublishMessages(h.ctx, h.now, publications[1])
	if wanted != nil {
		var full, otherFull *storage.QueueFullError
		var id, otherID *storage.MessageIDError
		same := errors.As(wanted, &full) && errors.As(err, &otherFull) ||
			errors.As(wanted, &id) && errors.As(err, &otherID) && id.Publication == otherID.Publication
		switch {
		case same:
		case full != nil || id != nil:
			h.Fatalf("got the error %v, want %v", err, wanted)
		default:
			h.sameError(err, wanted)
		}
		h.sameEvicted(p)
		return
	}
	h.must(err)
	h.both("number of answers", len(got), len(want))
	for i := range want {
		h.both("number of jobs", len(got[i].Jobs), len(want[i].Jobs))
		for j := range want[i].Jobs {
			if !want[i].Jobs[j].Duplicate {
				h.inserted(got[i].Jobs[j].ID, want[i].Jobs[j].ID)
			}
			got[i].Jobs[j].ID = h.byReal[got[i].Jobs[j].ID]
		}
		if len(want[i].Jobs) == 0 {
			got[i].Jobs, want[i].Jobs = nil, nil
		}
	}
	h.both("PublishMessages", got, want)
	h.sameEvicted(p)
	h.handedOver(p)
	h.forget(p)
}

// compareTopics compares all entries and messages.
func (h *history) compareTopics(p *pair) {
	real, model := p.topics()
	for _, class := range []string{"c", "d"} {
		for _, family := range []string{"", "p", "q"} {
			got, _, err := real.Entries(h.ctx, class, family, "", 10)
			h.must(err)
			want, _, err := model.Entries(h.ctx, class, family, "", 10)
			h.must(err)
			h.both("Entries", plainEntries(got), plainEntries(want))
		}
	}
	for _, topic := range []string{"t", "u"} {
		h.both("Messages", h.messages(real, topic), h.messages(model, topic))
	}
}

// plainEntries returns entries without what differs.
func plainEntries(all []storage.Entry) (out []storage.Entry) {
	for _, e := range all {
		e.Revision, e.CreatedAt, e.UpdatedAt = 0, e.CreatedAt.UTC(), e.UpdatedAt.UTC()
		out = append(out, e)
	}
	return out
}

// messages returns the messages of a topic with their bodies.
func (h *history) messages(s storage.Topics, topic string) (out []storage.Message) {
	after := ""
	for range 1000 {
		page, next, err := s.Messages(h.ctx, topic, time.Time{}, after, 2)
		h.must(err)
		for _, m := range page {
			whole, err := s.Message(h.ctx, m.ID)
			h.must(err)
			m.Body = whole.Body
			if m, whole = plainMessage(m), plainMessage(whole); !reflect.DeepEqual(m, whole) {
				h.Fatalf("Messages has %+v, Message %+v", m, whole)
			}
			out = append(out, m)
		}
		if after = next; next == "" {
			break
		}
	}
	return out
}
