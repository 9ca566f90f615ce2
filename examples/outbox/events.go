package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/errandq/errand"
)

//go:generate go run ./internal/gen -o events.jsonl

//go:embed events.jsonl
var eventsFile []byte

// OrderEvent is what a job is about: one line of events.jsonl. Args should
// hold all that the handler needs, since a retry may run days later and in
// another process.
type OrderEvent struct {
	ID   string          `json:"id"`
	Body json.RawMessage `json:"body"`
}

// Kind implements errand.Args.
func (OrderEvent) Kind() string { return "order_event" }

// loadEvents reads the lines of the file. It looks at nothing but the ID: what
// else is right or wrong about an event is for the receiver to say.
func loadEvents(file []byte) ([]OrderEvent, error) {
	var events []OrderEvent
	for line := range bytes.Lines(file) {
		var named struct{ ID string }
		if err := json.Unmarshal(line, &named); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(events)+1, err)
		}
		if named.ID == "" {
			return nil, fmt.Errorf("line %d: no id", len(events)+1)
		}
		events = append(events, OrderEvent{named.ID, bytes.TrimSpace(line)})
	}
	return events, nil
}

// batch is how many events go into one transaction: enough to share the cost
// of the sync, few enough for other writers to get their turn soon.
const batch = 200

// enqueue puts every event into the queue exactly once, however often the
// program is started and wherever it was killed: the unique key, held for
// ever, makes a second insert a duplicate that names the first job. An
// application that writes its orders to the same file would rather enqueue in
// the transaction that writes the order, with q.Tx and q.EnqueueTx.
func enqueue(ctx context.Context, q *errand.Queue, events []OrderEvent) (ids []errand.ID, fresh int, err error) {
	for part := range slices.Chunk(events, batch) {
		jobs := make([]errand.NewJob, len(part))
		for i, e := range part {
			jobs[i] = errand.NewJob{Args: e, Options: &errand.JobOptions{
				Unique: &errand.Unique{Key: e.ID, Forever: true},
			}}
		}
		done, err := q.EnqueueMany(ctx, jobs)
		if err != nil {
			return nil, 0, err
		}
		for _, d := range done {
			ids = append(ids, d.ID)
			if !d.Duplicate {
				fresh++
			}
		}
	}
	return ids, fresh, nil
}
