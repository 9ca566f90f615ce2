package storagetest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var messageCases = []testCase{
	{"message_publish", `PublishMessages stores messages and inserts the jobs that deliver them, in order, all in one transaction, and answers for each in the same order.
Message is stored; its PublishedAt is now.
Jobs that are inserted get the tag MessageTag(ID) beside their own.
Jobs are inserted as by Enqueue
Message returns a message, or [ErrNotFound].
Slices passed in belong to the caller again when the call returns; slices returned belong to the caller.`, func(f *fixture) {
		a := published("a", newJob(priority(1), tagged("mine")), newJob(delay(time.Hour)), newJob(unique("u")), newJob(unique("u")))
		a.Message.Attributes, a.Message.Body, a.Message.Cursor = noise(320<<10), noise(256<<10), "c"
		b := published("b:1._-", newJob())
		b.Message.Body = []byte{}
		out := f.publishes(a, b)
		jobs := out[0].Jobs
		if jobs[3].ID != jobs[2].ID || !jobs[3].Duplicate || jobs[2].Duplicate {
			f.Errorf("jobs with one unique key: %+v", jobs)
		}
		want := a.Message
		want.PublishedAt = f.now
		want.Attributes, want.Body = slices.Clone(want.Attributes), slices.Clone(want.Body)
		clear(a.Message.Attributes)
		clear(a.Message.Body)
		f.messageIs(want)
		b.Message.PublishedAt = f.now
		f.messageIs(b.Message)
		got, err := f.topics(f.s).Message(f.ctx, "a")
		f.must(err)
		clear(got.Body)
		f.messageIs(want)
		f.there(false, "c")
		if tags := f.record(jobs[0].ID).Tags; !slices.Equal(tags, []string{"message:a", "mine"}) {
			f.Errorf("the job has the tags %q", tags)
		}
		f.is(storage.Ready, jobs[0].ID, jobs[2].ID, out[1].Jobs[0].ID)
		f.is(storage.Scheduled, jobs[1].ID)
		page, err := f.s.Jobs(f.ctx, storage.Filter{Tag: storage.MessageTag("a")}, "", 10)
		f.must(err)
		if len(page.Jobs) != 3 {
			f.Errorf("%d jobs have the tag of the message, want 3", len(page.Jobs))
		}
		f.order("leased", leasedIDs(f.lease(f.s, 10)), []storage.ID{jobs[0].ID, jobs[2].ID, out[1].Jobs[0].ID})
	}},

	{"message_duplicate", `If one of the same Topic has its ID, or was published with the same Dedup less than its DedupFor before or after now, nothing of the publication is written, and it is a duplicate of that one.
of the message; of a duplicate that of the first
to Jobs in their order; nil of a duplicate`, func(f *fixture) {
		dedup := func(id, topic, by string) storage.Publication {
			p := published(id, newJob())
			p.Message.Topic, p.Dedup, p.DedupFor = topic, by, time.Minute
			return p
		}
		is := func(want string, p storage.Publication) {
			f.Helper()
			r := f.publishes(p)[0]
			if r.Duplicate != (want != "") || r.Duplicate && r.ID != want {
				f.Errorf("the answer to %q is %+v, want a duplicate of %q", p.Message.ID, r, want)
			}
		}
		out := f.publishes(published("a", newJob()), published("a", newJob(), newJob()))
		if out[0].Duplicate || !out[1].Duplicate || out[1].ID != "a" {
			f.Errorf("the second of a call is no duplicate: %+v", out)
		}
		is("a", dedup("a", "t", "z"))
		is("", dedup("b", "other", "x"))
		is("b", dedup("c", "other", "x"))
		is("", dedup("d", "t", "x"))
		is("", dedup("e", "other", "y"))
		is("", published("f", newJob()))
		f.counts(count(storage.Ready, 5))
		f.there(false, "c")
		start := f.now
		f.now = start.Add(time.Minute - time.Microsecond)
		is("b", dedup("g", "other", "x"))
		f.now = start.Add(-time.Minute + time.Microsecond)
		is("b", dedup("g", "other", "x"))
		f.now = start.Add(-time.Minute)
		is("", dedup("g", "other", "y"))
		f.now = start.Add(time.Minute)
		is("", dedup("h", "other", "x"))
		is("h", dedup("i", "other", "x"))
		f.there(true, "b", "h")
		r, err := f.topics(f.s).Message(f.ctx, "a")
		f.must(err)
		if r.Topic != "t" || string(r.Body) != "body of a" {
			f.Errorf("the message with a duplicate is %+v", r)
		}
	}},

	{"message_goes", `One without a KeepUntil is deleted in the transaction that deletes the last of its jobs, or that has published it without any.
The message stays while one of them is there, in whatever state.`, func(f *fixture) {
		out := f.publishes(published("a", newJob(), newJob(), newJob(), newJob(delay(time.Hour))), published("none"), published("b", newJob(unique("k"))), published("c", newJob(unique("k"))))
		f.there(false, "none", "c")
		f.there(true, "a", "b")
		jobs := out[0].Jobs
		leased := f.lease(f.s, 3)
		f.keep(time.Hour, f.s, storage.Finish{Lease: leased[0].Lease, Outcome: storage.OutcomeDone}) // kept as finished
		f.apply(f.s, died(leased[1].Lease, storage.ReasonPermanent, "no"))
		f.apply(f.s, storage.Finish{Lease: leased[2].Lease, Outcome: storage.OutcomeDone})
		f.there(true, "a")
		_, err := f.s.Cancel(f.ctx, f.now, jobs[3].ID, kept(0))
		f.must(err)
		f.there(true, "a")
		_, err = f.s.Redrive(f.ctx, f.now, storage.Selection{IDs: []storage.ID{jobs[1].ID}}, "other")
		f.must(err)
		f.there(true, "a")
		other := storage.Want{Queues: []string{"other"}, Kinds: []string{kind}}
		again := f.exchange(f.s, storage.Exchange{Wants: wants(1, other)}).Leased
		f.apply(f.s, died(again[0].Lease, storage.ReasonPermanent, "no"))
		f.later(time.Hour)
		f.purge()
		f.is("", jobs[0].ID)
		f.there(true, "a")
		_, err = f.s.Delete(f.ctx, storage.Selection{IDs: []storage.ID{jobs[1].ID}})
		f.must(err)
		f.there(false, "a")
		out = f.publishes(published("a", newJob(), newJob(delay(time.Hour))))
		if out[0].Duplicate {
			f.Errorf("the ID of a message that has gone is held")
		}
		f.there(true, "a", "b")
		f.publishes(published("d", newJob(priority(9))))
		f.keep(time.Hour, f.s, storage.Finish{Lease: f.leaseOne(f.s).Lease, Outcome: storage.OutcomeDone})
		f.there(true, "d")
		f.later(time.Hour)
		f.purge()
		f.there(false, "d")
	}},

	{"message_keep", `One with a KeepUntil is deleted by PublishMessages and PurgeFinished, some in each call, once its jobs are gone and its KeepUntil is over. Until it is deleted Message still returns it, but for PublishMessages it is gone.
and deletes messages whose time is over, see [Topics]. The time returned allows for the next of these too.`, func(f *fixture) {
		keepUntil := func(id string, d time.Duration, jobs ...storage.NewJob) storage.Publication {
			p := published(id, jobs...)
			p.Message.KeepUntil = f.now.Add(d)
			return p
		}
		start := f.now
		job := f.publishes(keepUntil("a", time.Hour, newJob()), keepUntil("none", 2*time.Hour), keepUntil("b", time.Minute, newJob(delay(100*time.Hour))))[0].Jobs[0]
		_, err := f.s.Cancel(f.ctx, f.now, job.ID, kept(0))
		f.must(err)
		if next := f.purge(); !next.Equal(start.Add(time.Hour)) {
			f.Errorf("PurgeFinished is to be called at %v, want in an hour", next)
		}
		f.now = start.Add(time.Hour - time.Microsecond)
		f.purge()
		f.there(true, "a", "none", "b")
		existing := storage.Publication{Message: storage.Message{ID: "a"}, Existing: true}
		f.publishes(existing)
		f.add(newJob(unique("u"), delay(100*time.Hour)))
		existing.Jobs = []storage.NewJob{newJob(unique("u"))}
		f.publishes(existing)
		f.now = start.Add(time.Hour)
		f.refuses("one whose time is over", storage.ErrNotFound, existing)
		f.there(true, "a")
		if next := f.purge(); !next.Equal(start.Add(2 * time.Hour)) {
			f.Errorf("PurgeFinished is to be called at %v, want in two hours", next)
		}
		f.there(false, "a")
		f.there(true, "none", "b")
		f.now = start.Add(2 * time.Hour)
		if r := f.publishes(published("none", newJob(priority(9))))[0]; r.Duplicate {
			f.Errorf("the ID of a message whose time is over is held")
		}
		f.there(true, "none", "b")
		l := f.leaseOne(f.s)
		f.keep(time.Hour, f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		f.now = start.Add(3 * time.Hour)
		if next := f.purge(); !next.IsZero() {
			f.Errorf("PurgeFinished is to be called at %v, want never", next)
		}
		f.there(false, "none")
		f.there(true, "b")
		out := f.publishes(keepUntil("twice", 0), published("twice", newJob(delay(time.Hour))))
		if out[1].Duplicate || len(out[1].Jobs) != 1 {
			f.Errorf("the second of a call, while the time of the first is over: %+v", out[1])
		}
		existing = storage.Publication{Message: storage.Message{ID: "over"}, Existing: true, From: "1"}
		f.refuses("one whose time is over as it is published", storage.ErrNotFound, keepUntil("over", 0), existing)
		for i := range 300 {
			f.publishes(keepUntil("many"+string(rune('a'+i%26))+string(rune('a'+i/26)), time.Second))
		}
		f.later(time.Second)
		f.there(true, "manyaa")
		f.publishes(published("next", newJob()))
		f.there(false, "manyaa")
		f.purge()
		f.there(false, "manyab", "manynl")
		f.there(true, "b")
	}},

	{"message_dedup_keeps", `KeepUntil is at least the end of DedupFor.`, func(f *fixture) {
		p := published("a")
		p.Dedup, p.DedupFor, p.Message.KeepUntil = "x", time.Minute, f.now.Add(time.Second)
		q := published("b")
		q.Dedup, q.DedupFor = "y", time.Minute
		f.publishes(p, q)
		f.later(time.Minute - time.Microsecond)
		if next := f.purge(); !next.Equal(f.now.Add(time.Microsecond)) {
			f.Errorf("PurgeFinished is to be called at %v, want in a microsecond", next)
		}
		f.there(true, "a", "b")
		f.later(time.Microsecond)
		f.purge()
		f.there(false, "a", "b")
	}},

	{"message_with", `MessageWith is Message with the revisions of up to [MostEntries] entries as of the same moment, in the order of their names: zero for one that is not there.`, func(f *fixture) {
		p := published("a", newJob())
		f.publishes(p)
		p.Message.PublishedAt = f.now
		first := f.putEntries(newEntry("x", "", "1"))
		second := f.putEntries(newEntry("y", "", "1"))
		name := func(name string) storage.EntryName { return storage.EntryName{Class: "c", Name: name} }
		read := func(want []int64, names ...storage.EntryName) {
			f.Helper()
			m, revisions, err := f.topics(f.s).MessageWith(f.ctx, "a", names...)
			f.must(err)
			if !slices.Equal(revisions, want) {
				f.Errorf("the revisions of %v are %v, want %v", names, revisions, want)
			}
			if !bytes.Equal(m.Body, p.Message.Body) || m.ID != "a" || !m.PublishedAt.Equal(f.now) {
				f.Errorf("the message is %+v", m)
			}
		}
		read(nil)
		read([]int64{first}, name("x"))
		read([]int64{second, first, 0, second}, name("y"), name("x"), name("z"), name("y"))
		read([]int64{0}, storage.EntryName{Class: "d", Name: "x"})
		third := f.putEntries(at(newEntry("x", "", "2"), first))
		read([]int64{third, second}, name("x"), name("y"))
		f.putEntries(deleted(at(newEntry("x", "", ""), third)))
		read([]int64{0, second}, name("x"), name("y"))
		if _, _, err := f.topics(f.s).MessageWith(f.ctx, "b", name("x")); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("a message that is not there: %v", err)
		}
	}},
	{"message_existing", `Existing says that the message must be there; of Message only the ID counts. If From or To is set, its Cursor must be From and becomes To.
or a message is not at its From, and [ErrNotFound] if a message that must be there is not.`, func(f *fixture) {
		p := published("a", newJob())
		f.publishes(p)
		want := p.Message
		want.PublishedAt = f.now
		f.later(time.Second)
		step := func(from, to string, jobs ...storage.NewJob) storage.Publication {
			return storage.Publication{Message: storage.Message{ID: "a", Topic: "other", Body: []byte("x")}, Existing: true, From: from, To: to, Jobs: jobs}
		}
		out := f.publishes(step("", "", newJob()), step("", "1", newJob(), newJob()), step("1", "2"))
		if tags := f.record(out[1].Jobs[1].ID).Tags; !slices.Equal(tags, []string{"message:a"}) {
			f.Errorf("a job that was added to a message has the tags %q", tags)
		}
		want.Cursor = "2"
		f.messageIs(want)
		f.counts(count(storage.Ready, 4))
		f.refuses("a step from before", storage.ErrStale, step("1", "3", newJob()))
		f.refuses("a step from the beginning", storage.ErrStale, published("z", newJob()), step("", "3", newJob()))
		missing := step("", "", newJob())
		missing.Message.ID = "b"
		f.refuses("a message that is not there", storage.ErrNotFound, missing)
		f.refuses("a message that is not there, behind another", storage.ErrNotFound, published("z", newJob()), missing)
		f.there(false, "z", "b")
		f.messageIs(want)
		f.publishes(step("2", ""))
		want.Cursor = ""
		f.messageIs(want)
		// A message that has only its KeepUntil is kept by a job that is added.
		k := published("k")
		k.Message.KeepUntil = f.now.Add(time.Hour)
		f.publishes(k)
		more := storage.Publication{Message: storage.Message{ID: "k"}, Existing: true, Jobs: []storage.NewJob{newJob(delay(time.Minute))}}
		job := f.publishes(more)[0].Jobs[0]
		f.later(2 * time.Hour)
		f.purge()
		f.there(true, "k")
		_, err := f.s.Cancel(f.ctx, f.now, job.ID, kept(0))
		f.must(err)
		f.purge()
		f.there(false, "k")
		fresh := published("n")
		f.publishes(fresh, storage.Publication{Message: storage.Message{ID: "n"}, Existing: true, Jobs: []storage.NewJob{newJob()}})
		f.there(true, "n")
	}},

	{"message_family", `Family, if not empty, must be at Revision.
It returns [ErrStale] if a family is not at its Revision`, func(f *fixture) {
		f.topics(f.s)
		to := func(family string, revision int64) storage.Publication {
			p := published("m"+family, newJob())
			p.Family, p.Revision = family, revision
			return p
		}
		f.publishes(to("never", 0))
		first := f.putEntries(newEntry("a", "f", ""))
		f.refuses("before there was an entry", storage.ErrStale, published("z", newJob()), to("f", 0))
		f.publishes(to("f", first))
		second := f.putEntries(deleted(at(newEntry("a", "f", ""), first)))
		f.refuses("before the entry was deleted", storage.ErrStale, to("f", first))
		f.refuses("a duplicate before the entry was deleted", storage.ErrStale, published("z"), to("f", first))
		f.publishes(to("f", second))
		f.there(false, "z")
	}},

	{"message_other_topic", `If a message of another Topic has its ID, the call is refused with a [*MessageIDError].
the index of that which was refused`, func(f *fixture) {
		other := published("a", newJob())
		other.Message.Topic = "other"
		f.publishes(published("a", newJob()))
		for i, all := range [][]storage.Publication{{other}, {published("b", newJob()), other}} {
			f.refuses("the ID of another topic", storage.ErrMessageID, all...)
			_, err := f.topics(f.s).PublishMessages(f.ctx, f.now, all)
			if e, ok := errors.AsType[*storage.MessageIDError](err); !ok || e.Publication != i {
				f.Errorf("the error is %#v, want that of publication %d", err, i)
			}
		}
		f.there(false, "b")
	}},

	{"message_refused", `Jobs are inserted as by Enqueue; a job that it would refuse refuses the call.`, func(f *fixture) {
		fail := newJob(unique("u"))
		fail.Conflict = &storage.Conflict{Mode: storage.Fail}
		f.add(newJob(unique("u")))
		f.topics(f.s)
		f.refuses("a key that is held", storage.ErrDuplicate, published("a", fail))
		f.refuses("a key that is held, behind others", storage.ErrDuplicate, published("a", newJob()), published("b", newJob(), fail))
		f.there(false, "a", "b")
	}},

	{"message_list", `Messages lists the messages of a topic that were published at since or later, at most limit of them, without their bodies, in the order of PublishedAt and then of their publication. after is the next of the call before, or empty. next is empty if there are no more.
not nil; of Messages nil`, func(f *fixture) {
		with := func(id, topic string) storage.Publication {
			p := published(id, newJob())
			p.Message.Topic, p.Message.Attributes, p.Message.Cursor = topic, []byte("of "+id), "c"
			return p
		}
		start := f.now
		f.publishes(with("a", "t"), with("x", "u"), with("c", "t"), with("b", "t"))
		f.now = start.Add(time.Minute)
		f.publishes(with("e", "t"))
		f.now = start.Add(-time.Minute)
		f.publishes(with("d", "t"))
		list := func(topic string, since time.Time, limit int, want ...string) {
			f.Helper()
			var ids []string
			after := ""
			for range 100 {
				page, next, err := f.topics(f.s).Messages(f.ctx, topic, since, after, limit)
				f.must(err)
				for _, m := range page {
					ids = append(ids, m.ID)
					if m.Body != nil || m.Topic != topic || string(m.Attributes) != "of "+m.ID || m.PublishedAt.IsZero() || m.Cursor != "c" {
						f.Errorf("Messages has %+v", m)
					}
				}
				if after = next; next == "" {
					break
				}
				if len(page) != limit {
					f.Errorf("a page of %d messages with a next, want %d", len(page), limit)
				}
			}
			if !slices.Equal(ids, want) {
				f.Errorf("Messages(%q, %v) by %d: %q, want %q", topic, since, limit, ids, want)
			}
		}
		for _, limit := range []int{1, 2, 5, 10} {
			list("t", time.Time{}, limit, "d", "a", "c", "b", "e")
			list("t", start, limit, "a", "c", "b", "e")
			list("t", start.Add(time.Microsecond), limit, "e")
			list("t", start.Add(time.Hour), limit)
			list("u", time.Time{}, limit, "x")
			list("v", time.Time{}, limit)
		}
	}},

	{"message_handoff", `A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of want as ready goes on to lease jobs of want in the same transaction`, func(f *fixture) {
		f.topics(f.s)
		w := f.offer(f.s, usual, 9)
		one := f.publishes(published("a", newJob()))[0].Jobs[0].ID
		first := w.took("handed over alone", one)
		two := f.publishes(published("b", newJob(), newJob()))[0].Jobs
		rest := w.took("handed over together", two[0].ID, two[1].ID)
		f.is(storage.Running, one, two[0].ID, two[1].ID)
		f.finishAll(f.s, append(first, rest...)...)
		f.there(false, "a", "b")
	}},
}
