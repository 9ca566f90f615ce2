package apitest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

const wantHaste = "must be above 0, or 5 retries are made at once: policy.Retries(5) has delays that double from 15s; if none are meant, set NoDelayRetries to 5"

//errand:shows retries without delays | | a policy that has retries and no delays is refused wherever one is set, with what to write; one of an older build in a row keeps its retries
func TestPolicy_Haste(t *testing.T) {
	hasty := policy.Policy{Retries: 5}
	document := policy.Document{Retry: &hasty}
	open := func(o *errand.Options) error {
		q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), o)
		if err == nil {
			_ = q.Close()
		}
		return err
	}
	q, _ := memoryQueue(t, errand.Options{})
	defer q.Close()
	handle := func(p policy.Delivery) (err error) {
		defer func() { err = fmt.Errorf("%v", recover()) }()
		errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil }, errand.HandlerOptions{Policy: p})
		return nil
	}
	for name, c := range map[string]struct {
		field string
		err   error
	}{
		"options":   {"policy.max_delay", open(&errand.Options{Policy: hasty})},
		"throttled": {"policy.throttled_retry.max_delay", open(&errand.Options{Policy: policy.Document{ThrottledRetry: &hasty}})},
		"queue":     {`queues["mail"].policy.retry.max_delay`, open(&errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: document}}})},
		"handler":   {"policy.max_delay", handle(hasty)},
		"job":       {"policy.max_delay", second(q.Enqueue(t.Context(), note{}, &errand.JobOptions{Policy: hasty}))},
		"change":    {"policy.max_delay", second(q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{{1}}}, errand.JobChange{Policy: hasty}))},
	} {
		if c.err == nil || !strings.HasSuffix(c.err.Error(), c.field+" 0s: "+wantHaste) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// older changes rows of a queue to what older builds wrote, below all checks: NoDelayRetries, which says
// that retries have no delay, is taken out of policies.
func older(t *testing.T, q *errand.Queue, path string, rows int64) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, column := range [][3]string{{"errand_policy", "doc", "TEXT"}, {"errand_schedule_job", "policy", "TEXT"}, {"errand_entry", "doc", "BLOB"}} {
		const said, unsaid = `"numNoDelayRetries":5`, `"numNoDelayRetries":0`
		r, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %[1]s SET %[2]s = CAST(replace(%[2]s, ?, ?) AS %[3]s) WHERE CAST(%[2]s AS TEXT) LIKE '%%' || ? || '%%'", column[0], column[1], column[2]), said, unsaid, said)
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.RowsAffected()
		if err != nil {
			t.Fatal(err)
		}
		rows -= n
	}
	if rows != 0 {
		t.Fatalf("%d rows are missing", rows)
	}
}

// atOnce says what an older build took without it being said.
var atOnce = policy.Policy{Retries: 5, NoDelayRetries: 5}

// Rows of an older build have such a policy, and keep it. A line of the log says so once for all
// jobs of a kind.
func TestPolicy_HasteOfOldRow(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var ids []errand.ID
	for range 2 {
		e, err := q.Enqueue(t.Context(), note{}, &errand.JobOptions{Policy: atOnce})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	older(t, q, path, 1)
	dead := make(chan struct{}, len(ids))
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		if job.Attempt == 6 {
			dead <- struct{}{}
		}
		return errors.New("no")
	})
	stop := run(t, w)
	for range ids {
		<-dead
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		j, err := q.Job(t.Context(), id)
		if err != nil || j.State != errand.Dead || j.Attempt != 6 || j.Policy == nil || *j.Policy.Retry != atOnce {
			t.Errorf("%+v, %v", j, err)
		}
	}
	if err := q.Close(); err != nil { // and the log is written
		t.Error(err)
	}
	if n := strings.Count(log.String(), "policy of an older build"); n != 1 || !strings.Contains(log.String(), "policy.Retries(5)") {
		t.Errorf("%d warnings in %s", n, &log)
	}
}

// What is read back of such rows is refused nowhere.
//
//errand:shows retries without delays | | what an older build took is read with the same retries, and can be handed in again
func TestPolicy_HasteReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	hooks, err := webhook.New(q, &webhook.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := topic.New(q, hooks, &topic.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, own := t.Context(), &policy.Document{Retry: &atOnce}
	options := errand.JobOptions{Policy: own}
	job, err := q.Enqueue(ctx, note{}, &options)
	if err == nil {
		err = q.Schedule(ctx, errand.Schedule{Name: "s", Spec: "@daily", Args: note{}, Options: &options})
	}
	if err == nil {
		_, _, err = hooks.Create(ctx, webhook.Endpoint{ID: "e", URL: "https://e.example/", Policy: own}, webhook.Secret{})
	}
	if err == nil {
		_, err = topics.Create(ctx, topic.Topic{Name: "t", Policy: &policy.Topic{Document: *own}})
	}
	if err == nil {
		_, err = topics.Subscribe(ctx, topic.Subscription{ID: "u", Topic: "t", Endpoint: "e", Policy: own})
	}
	if err != nil {
		t.Fatal(err)
	}
	older(t, q, path, 5)

	j, err := q.Job(ctx, job.ID)
	if err != nil || *j.Policy.Retry != atOnce {
		t.Fatalf("%+v, %v", j, err)
	}
	text, err := json.Marshal(j)
	var exported errand.JobInfo
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(text, []byte(`"numNoDelayRetries":5`), []byte(`"numNoDelayRetries":0`)), &exported)
	}
	s, err2 := q.Schedules().Get(ctx, "s")
	e, err3 := hooks.Endpoint(ctx, "e")
	p, err4 := topics.Topic(ctx, "t")
	u, err5 := topics.Subscription(ctx, "u")
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	dead := errand.JobFilter{IDs: []errand.ID{job.ID}}
	for name, again := range map[string]func() error{
		"enqueue":  func() error { return second(q.Enqueue(ctx, note{}, &errand.JobOptions{Policy: j.Policy})) },
		"exported": func() error { return second(q.Enqueue(ctx, note{}, &errand.JobOptions{Policy: exported.Policy})) },
		"change":   func() error { return second(q.Change(ctx, dead, errand.JobChange{Policy: j.Policy})) },
		"redrive": func() error {
			return second(q.DeadLetters().Redrive(ctx, dead, &errand.RedriveOptions{Change: &errand.JobChange{Policy: j.Policy}}))
		},
		"schedule": func() error {
			return q.Schedule(ctx, errand.Schedule{Name: "s", Spec: s.Spec, Args: note{}, Options: &s.Options})
		},
		"endpoint":     func() error { return second(hooks.Update(ctx, e)) },
		"declared":     func() error { _, _, err := hooks.Declare(ctx, e, webhook.Secret{}); return err },
		"topic":        func() error { return second(topics.Update(ctx, p)) },
		"declared too": func() error { return second(topics.Declare(ctx, p)) },
		"subscription": func() error { return second(topics.UpdateSubscription(ctx, u)) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := again(); err != nil {
				t.Error(err)
			}
		})
	}
}
