package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy/policyhttp"
)

// Upload is the job that sends a reading to the server.
type Upload struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	Celsius float64   `json:"celsius"`
}

// Kind names the type of job.
func (Upload) Kind() string { return "upload" }

// device has the queue and the application's table in one file.
type device struct {
	queue  *errand.Queue
	worker *errand.Worker
	modem  *errand.Switch // closed: it has no carrier
	client *http.Client
	url    string
	login  func(context.Context) (string, error) // returns a new token
	token  atomic.Value                          // of string
}

func open(ctx context.Context, db string, client *http.Client, url string, login func(context.Context) (string, error), log *slog.Logger) (*device, error) {
	d := &device{modem: new(errand.Switch), client: client, url: url, login: login}
	if err := d.refresh(ctx); err != nil {
		return nil, err
	}
	var err error
	d.queue, err = errand.Open(ctx, db, &errand.Options{
		Queues: map[string]errand.QueueOptions{"default": {Gate: d.modem}},
		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	err = d.queue.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS readings (
			id INTEGER PRIMARY KEY, at INTEGER NOT NULL, celsius REAL NOT NULL, sent INTEGER)`)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, d.queue.Close())
	}
	d.worker = errand.NewWorker(d.queue, &errand.WorkerOptions{Timeout: time.Minute})
	errand.Handle(d.worker, d.upload, errand.HandlerOptions{OnUnauthorized: d.refresh})
	return d, nil
}

func (d *device) close() error { return d.queue.Close() }

// record writes a reading and the job that uploads it, both or neither.
func (d *device) record(ctx context.Context, celsius float64) error {
	return d.queue.Tx(ctx, func(tx *sql.Tx) error {
		r := Upload{At: time.Now(), Celsius: celsius}
		const insert = `INSERT INTO readings (at, celsius) VALUES (?1, ?2) RETURNING id`
		if err := tx.QueryRowContext(ctx, insert, r.At.UnixMilli(), r.Celsius).Scan(&r.ID); err != nil {
			return err
		}
		_, err := d.queue.EnqueueTx(ctx, tx, r, nil)
		return err
	})
}

// upload is the handler. What an error means is decided by the default rules.
func (d *device) upload(ctx context.Context, job *errand.Job[Upload]) error {
	body, err := json.Marshal(job.Args)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return errand.Permanent(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.token.Load().(string))
	req.Header.Set("Idempotency-Key", job.ID.String()) // a job may run twice
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := policyhttp.Error(resp); err != nil {
		return err
	}
	return d.queue.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE readings SET sent = ?1 WHERE id = ?2`, time.Now().UnixMilli(), job.Args.ID)
		return err
	})
}

// refresh gets a new token. The worker calls it when the server takes the old one no
// longer, and then lets a job through.
func (d *device) refresh(ctx context.Context) error {
	token, err := d.login(ctx)
	if err == nil {
		d.token.Store(token)
	}
	return err
}

// status is what a person on site wants to know.
type status struct {
	waiting  int64
	lastSync time.Duration // ago; negative: never
	held     string        // why nothing is sent; empty: it is
}

func (s status) String() string {
	sync := "never synced"
	if s.lastSync >= 0 {
		sync = "last sync " + ago(s.lastSync) + " ago"
	}
	held := ""
	if s.held != "" {
		held = ", held: " + s.held
	}
	return fmt.Sprintf("%d wait, %s%s", s.waiting, sync, held)
}

// ago returns a duration in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}

// status asks the queue and the application's own table.
func (d *device) status(ctx context.Context) (s status, err error) {
	counts, err := d.queue.Counts(ctx)
	if err != nil {
		return s, err
	}
	for _, c := range counts {
		switch c.State {
		case errand.Scheduled, errand.Ready, errand.Running:
			s.waiting += c.N
		}
	}
	var sent sql.NullInt64
	err = d.queue.Tx(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT max(sent) FROM readings`).Scan(&sent)
	})
	if err != nil {
		return s, err
	}
	s.lastSync = -1
	if sent.Valid {
		s.lastSync = time.Since(time.UnixMilli(sent.Int64))
	}
	s.held, err = d.held(ctx)
	return s, err
}

// held returns why nothing is sent, or "".
func (d *device) held(ctx context.Context) (string, error) {
	if open, reason, _ := d.modem.State(); !open {
		return reason, nil
	}
	holds, err := d.queue.Holds(ctx)
	why := ""
	for _, h := range holds {
		if h.Includes("default", "upload") { // the hold of just this queue and kind comes last
			why = cmp.Or(h.Detail, h.Reason)
		}
	}
	parts := strings.Split(why, ": ")
	return parts[len(parts)-1], err // what the server said, without the request
}
