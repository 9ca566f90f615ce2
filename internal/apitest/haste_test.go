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

// A row of an older build has such a policy, and keeps it.
func TestPolicy_HasteOfOldRow(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, err := errand.Open(t.Context(), path, &errand.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	e, err := q.Enqueue(t.Context(), note{}, &errand.JobOptions{Policy: policy.Policy{Retries: 5, NoDelayRetries: 5}})
	if err != nil {
		t.Fatal(err)
	}
	old, err := json.Marshal(policy.Document{Retry: &policy.Policy{Retries: 5}})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.ExecContext(t.Context(), "UPDATE errand_policy SET doc = ?", string(old)); err != nil {
		t.Fatal(err)
	} else if n, err := r.RowsAffected(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	dead := make(chan struct{})
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		if job.Attempt == 6 {
			close(dead)
		}
		return errors.New("no")
	})
	stop := run(t, w)
	<-dead
	if err := stop(); err != nil {
		t.Error(err)
	}
	j, err := q.Job(t.Context(), e.ID)
	if err != nil || j.State != errand.Dead || j.Attempt != 6 || j.Policy == nil || *j.Policy.Retry != (policy.Policy{Retries: 5}) {
		t.Errorf("%+v, %v", j, err)
	}
	if err := q.Close(); err != nil { // and the log is written
		t.Error(err)
	}
	if n := strings.Count(log.String(), "policy of an older build"); n != 1 || !strings.Contains(log.String(), "policy.Retries(5)") {
		t.Errorf("%d warnings in %s", n, &log)
	}
}
