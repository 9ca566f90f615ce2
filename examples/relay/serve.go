package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/errandq/errand"
)

// serve answers requests at addr and runs w until ctx ends or one of the two fails. It stops
// both, lets them finish what they have begun, and returns the errors of both.
func serve(ctx context.Context, addr string, handler http.Handler, w *errand.Worker) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	slog.Info("listening", "addr", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	served, worked := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener); stop() }()
	go func() { worked <- w.Run(ctx); stop() }()
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 8*time.Second) // as handlers have
	defer cancel()
	err = errors.Join(server.Shutdown(grace), <-worked)
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
