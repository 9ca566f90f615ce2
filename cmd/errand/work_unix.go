//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// heedSignals returns a context that ends with ctx, or with a signal that would end the worker
// together with its jobs: they are not to blame for that. What the worker can go on without does
// not end it: somebody who reads what it writes, and room in a file.
func heedSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGXFSZ)
	ends := slices.DeleteFunc([]os.Signal{syscall.SIGQUIT, syscall.SIGXCPU}, signal.Ignored)
	if len(ends) == 0 { // which would stand for all signals
		return context.WithCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ctx, stop) // a second SIGQUIT ends the process
	return ctx, stop
}
