package errand_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/errandq/errand"
)

// Upload sends the latest text of a document to some other place.
type Upload struct{ Document int }

// Kind names the type of job.
func (Upload) Kind() string { return "upload" }

// A unique key is held until the job has ended. So an edit that comes while the
// handler runs finds the key taken, and nobody uploads it.
func ExampleUnique_latestState() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()
	text := "first"
	edit := func(to string) {
		text = to
		e := must(q.Enqueue(ctx, Upload{17}, &errand.JobOptions{Unique: &errand.Unique{Key: "document 17"}}))
		fmt.Println("edited to", to, "- duplicate:", e.Duplicate)
	}

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[Upload]) error {
		read := text
		edit("second") // somebody does, during the upload
		fmt.Println("uploaded", read)
		stop()
		return nil
	})
	edit("first")
	check(w.Run(ctx))
	for _, c := range must(q.Counts(context.Background())) {
		fmt.Println("in the end:", c.N, "job", c.State, "- the text is", text)
	}
	// Output:
	// edited to first - duplicate: false
	// edited to second - duplicate: true
	// uploaded first
	// in the end: 1 job done - the text is second
}

// documents keeps the texts of an application, in the file of the queue.
type documents struct {
	q  *errand.Queue
	mu sync.Mutex
	at map[int]int // the version of each document at the other place
}

const sqlDocuments = `CREATE TABLE document (
	id INTEGER PRIMARY KEY, text TEXT NOT NULL, version INTEGER NOT NULL,
	waiting BOOLEAN NOT NULL -- a job will start and read the row
)`

// save writes a text, and enqueues a job unless one is waiting.
func (d *documents) save(ctx context.Context, id int, text string) error {
	return d.q.Tx(ctx, func(tx *sql.Tx) error {
		var waiting bool
		err := tx.QueryRowContext(ctx, `SELECT waiting FROM document WHERE id = ?1`, id).Scan(&waiting)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // no row: the first edit
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO document (id, text, version, waiting) VALUES (?1, ?2, 1, true)
			ON CONFLICT (id) DO UPDATE SET text = ?2, version = version + 1, waiting = true`, id, text)
		if err != nil || waiting {
			return err
		}
		_, err = d.q.EnqueueTx(ctx, tx, Upload{id}, nil) // without a key
		return err
	})
}

// upload is the handler. An edit from here on is not what it has read, and so
// gets a job of its own.
func (d *documents) upload(ctx context.Context, job *errand.Job[Upload]) error {
	var text string
	var version int
	err := d.q.Tx(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `UPDATE document SET waiting = false WHERE id = ?1
			RETURNING text, version`, job.Args.Document).Scan(&text, &version)
	})
	if err != nil {
		return err
	}
	return d.put(job.Args.Document, version, text)
}

// put is the other place. Two jobs of a document may run at the same time, so
// it refuses what is older than what it has.
func (d *documents) put(id, version int, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at[id] = max(d.at[id], version)
	return nil
}

// With a flag in the application's table, which is set by an edit and cleared
// by whoever reads, no edit is lost, and edits that come together share a job.
func ExampleQueue_Tx_latestState() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(&errand.Options{SQLite: errand.SQLiteOptions{Durability: errand.Relaxed}})
	defer remove()
	d := &documents{q: q, at: map[int]int{}}
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, sqlDocuments)
		return err
	}))

	w := errand.NewWorker(q, nil)
	errand.Handle(w, d.upload)
	errand.Handle(w, func(context.Context, *errand.Job[Last]) error { stop(); return nil })
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	// 100 edits of each document, while they are uploaded.
	var editors sync.WaitGroup
	for id := 1; id <= 4; id++ {
		editors.Go(func() {
			for n := range 100 {
				check(d.save(ctx, id, fmt.Sprint("text ", n)))
			}
		})
	}
	editors.Wait()
	must(q.Enqueue(ctx, Last{}, nil))
	check(<-done)
	fmt.Println("versions at the other place:", d.at)
	// Output:
	// versions at the other place: map[1:100 2:100 3:100 4:100]
}

// Last is a job that starts after all others.
type Last struct{}

// Kind names the type of job.
func (Last) Kind() string { return "last" }
