//go:build unix

package torture_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

func init() { roles["publishing"], roles["delivering"] = publishing, delivering }

// parcel delivers a message to one of ten.
type parcel struct {
	Message string
	To      int
}

func (parcel) Kind() string { return "parcel" }

const parcels = 10

func parcelQueue(p part) (*errand.Queue, door.Topics[errand.NewJob], error) {
	o := groupOptions(p.Relaxed)
	o.Retention = -1
	q, err := errand.Open(context.Background(), p.DB, o)
	if err != nil {
		return nil, nil, err
	}
	topics, err := door.Open[errand.NewJob](q)
	return q, topics, err
}

// publishing is a program that publishes messages until it is killed, each third one in
// its own transaction, and says so of each.
func publishing(p part, v *voice) error {
	ctx := context.Background()
	q, topics, err := parcelQueue(p)
	if err != nil {
		return err
	}
	for n := p.First; ; n++ {
		id := fmt.Sprint("m", n)
		m := door.Publication[errand.NewJob]{Message: storage.Message{ID: id, Topic: "t", Body: make([]byte, n%7*3000)}}
		if n%5 == 0 {
			m.Message.KeepUntil = time.Now().Add(time.Duration(n%200) * time.Millisecond)
		}
		for to := range parcels {
			m.Jobs = append(m.Jobs, errand.NewJob{Args: parcel{id, to}})
		}
		if n%3 == 0 {
			err = q.Tx(ctx, func(tx *sql.Tx) error {
				in, err := door.TopicsTx[errand.NewJob](q, tx)
				if err != nil {
					return err
				}
				_, err = in.Publish(ctx, []door.Publication[errand.NewJob]{m})
				return err
			})
		} else {
			_, err = topics.Publish(ctx, []door.Publication[errand.NewJob]{m})
		}
		if err != nil {
			return err
		}
		v.say("published %s", id)
		<-time.After(p.Pause)
	}
}

// delivering is a program that delivers until it is killed. One in ten dies.
func delivering(p part, v *voice) error {
	q, topics, err := parcelQueue(p)
	if err != nil {
		return err
	}
	r := receiver{filepath.Dir(p.DB)}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[parcel]) error {
		if _, err := topics.Message(ctx, job.Args.Message); errors.Is(err, errand.ErrNotFound) {
			return r.complain("parcel %d of %s is without its message", job.Args.To, job.Args.Message)
		}
		if job.Args.To == 3 {
			return errand.Permanent(errors.New("as planned"))
		}
		return nil
	})
	v.say("delivers")
	return w.Run(context.Background())
}

// parcelsIn returns how many jobs each message has that is there, and how many messages
// the jobs lack.
func parcelsIn(t *testing.T, path string) (of map[string]int, lacking int) {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT id, (SELECT COUNT(*) FROM errand_tag WHERE tag = 'message:' || id) FROM errand_message`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	of = map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		of[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	err = db.QueryRow(`SELECT COUNT(*) FROM errand_tag WHERE substr(tag, 9) NOT IN (SELECT id FROM errand_message)`).Scan(&lacking)
	if err != nil {
		t.Fatal(err)
	}
	return of, lacking
}

// A process that publishes messages of ten jobs each is killed again and again. Each that
// it has acknowledged is there with all its jobs, and of the others all or nothing.
// Then processes that deliver them are killed. No job is ever without its message, and at
// the end a message is there for each dead letter, and goes with that.
//
//errand:shows [messages] | full relaxed | a process that publishes messages of ten jobs is killed, sixty times, and then processes that deliver them until all are delivered
func TestKill_Topics(t *testing.T) { inBoth(t, killTopics) }

func killTopics(t *testing.T, relaxed bool) {
	t.Parallel()
	random := dice(t)
	l, path := newLedger(), filepath.Join(ramDir(t), "jobs.db") // of the ledger nothing is asked
	acknowledged := map[string]bool{}
	rounds(t, 4, 60, func(i int) {
		c := start(t, l, part{Role: "publishing", DB: path, First: (i + 1) * 100_000, Relaxed: relaxed, Pause: between(random, 0, 10*time.Millisecond)})
		c.hears("published ")
		<-time.After(between(random, 10*time.Millisecond, 150*time.Millisecond))
		c.kill()
		acknowledged[fmt.Sprint("m", (i+1)*100_000)] = true
		for line := range c.said {
			if id, ok := strings.CutPrefix(line, "published "); ok {
				acknowledged[id] = true
			}
		}
	})
	of, lacking := parcelsIn(t, path)
	for id := range acknowledged {
		if of[id] != parcels {
			t.Errorf("the message %s was acknowledged, and has %d jobs, want %d", id, of[id], parcels)
		}
	}
	for id, n := range of {
		if n != parcels {
			t.Errorf("the message %s has %d jobs, want %d", id, n, parcels)
		}
	}
	if lacking > 0 {
		t.Errorf("%d jobs are without their message", lacking)
	}
	wantRules(t, path)

	q, topics, err := parcelQueue(part{DB: path, Relaxed: relaxed})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	left := func() (n int64) {
		counts, err := q.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			if c.State != errand.Dead {
				n += c.N
			}
		}
		return n
	}
	kills := 0
	for left() > 0 && !t.Failed() {
		c := start(t, l, part{Role: "delivering", DB: path, Relaxed: relaxed})
		c.hears("delivers")
		<-time.After(between(random, 50*time.Millisecond, 300*time.Millisecond))
		c.kill()
		if kills++; kills%5 == 0 { // it reads all jobs
			wantRules(t, path)
		}
	}
	if _, err := topics.Publish(t.Context(), []door.Publication[errand.NewJob]{{Message: storage.Message{ID: "last", Topic: "t"}}}); err != nil { // which purges
		t.Error(err)
	}
	after, _ := parcelsIn(t, path)
	for id := range of {
		if after[id] == 0 { // what crashed too often is dead too
			t.Errorf("the message %s has no jobs after the delivery, want the dead one", id)
		}
	}
	if _, err := q.DeadLetters().Purge(t.Context(), errand.JobFilter{All: true}); err != nil {
		t.Error(err)
	}
	rest, _ := parcelsIn(t, path)
	for id, n := range rest {
		if m, err := topics.Message(t.Context(), id); n > 0 || err == nil && m.KeepUntil.IsZero() {
			t.Errorf("the message %s is left with %d jobs", id, n)
		}
	}
	wantRules(t, path)
	if b, err := os.ReadFile(receiver{filepath.Dir(path)}.path("complaints")); err == nil {
		t.Errorf("%.2000s", b)
	}
	t.Logf("%d messages, %d of them acknowledged; %d kills while they were delivered", len(of), len(acknowledged), kills)
}
