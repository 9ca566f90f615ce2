package main

import (
	"context"
	"net/http"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/errandq/errand"
)

// Welcome is a job: it greets a new user.
type Welcome struct {
	Email string `json:"email"`
}

// Kind names the type of job.
func (Welcome) Kind() string { return "welcome" }

// Remind is a job, three days later.
type Remind struct {
	Email string `json:"email"`
}

// Kind names the type of job.
func (Remind) Kind() string { return "remind" }

type app struct {
	db   *sqlx.DB
	q    *errand.Queue
	mail func(ctx context.Context, to, text string) error
}

// signUp writes a user and the job that greets the user: both or neither.
func (a *app) signUp(ctx context.Context, email string) error {
	tx, err := a.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, `INSERT INTO users (email) VALUES (?1)`, email); err != nil {
		return err
	}
	if _, err := a.q.EnqueueTx(ctx, tx.Tx, Welcome{Email: email}, nil); err != nil {
		return err
	}
	return tx.Commit()
}

func (a *app) worker() *errand.Worker {
	w := errand.NewWorker(a.q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Welcome]) error {
		if err := a.mail(ctx, job.Args.Email, "welcome"); err != nil {
			return err
		}
		return job.Then(Remind(job.Args), &errand.JobOptions{Delay: 72 * time.Hour})
	})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[Remind]) error {
		return a.mail(ctx, job.Args.Email, "reminder")
	})
	return w
}

func (a *app) postUser(w http.ResponseWriter, r *http.Request) {
	if err := a.signUp(r.Context(), r.FormValue("email")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
