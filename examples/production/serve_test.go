package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/internal/kit"
)

// When ctx ends, server and worker stop at the same time: no connection is accepted any more, the
// request that has begun is answered, and the job that has begun is done.
//
//errand:shows a server beside a worker | | the end of the context stops both, which finish what they have begun; one that fails ends the other; the address is free then
func TestServe_stop(t *testing.T) {
	lines, restore := kit.LogLines()
	defer restore()
	q := errandtest.New(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	answering, refused := make(chan struct{}), make(chan struct{})
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[SendEmail]) error {
		<-answering
		stop()
		<-refused
		return nil
	})
	e, err := q.Enqueue(t.Context(), SendEmail{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(answering)
			<-refused
			_, _ = io.WriteString(w, "answered") // whoever reads it says so
		}), w)
	}()
	addr := kit.After(lines, "listening addr=")
	go func() {
		defer close(refused)
		<-ctx.Done()
		for {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	answer, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "answered" || answer.Body.Close() != nil {
		t.Errorf("the answer is %q, %v", body, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if j, err := q.Job(t.Context(), e.ID); err != nil || j.State != errand.Done {
		t.Errorf("the job is %s, %v: want done", j.State, err)
	}
}

// A worker that fails ends the server, and its error is returned. Without an address nothing is begun.
//
//errand:shows a server beside a worker
func TestServe_fails(t *testing.T) {
	lines, restore := kit.LogLines()
	defer restore()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := serve(t.Context(), "127.0.0.1:0", http.NotFoundHandler(), newWorker(q, &mailer{})); !errors.Is(err, errand.ErrClosed) {
		t.Errorf("a worker on a closed queue: %v, want ErrClosed", err)
	}
	free, err := net.Listen("tcp", kit.After(lines, "listening addr="))
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	err = serve(t.Context(), free.Addr().String(), http.NotFoundHandler(), newWorker(q, &mailer{}))
	if errors.Is(err, errand.ErrClosed) || !errors.As(err, new(*net.OpError)) {
		t.Errorf("an address that is taken: %v", err)
	}
}
