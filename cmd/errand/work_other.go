//go:build !unix

package main

import "context"

// heedSignals returns a context that ends with ctx.
func heedSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
