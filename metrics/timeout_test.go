package metrics

import (
	"context"
	"time"
)

// The limits of time hold in the bubbles of package synctest alone, whose clocks begin in the year
// 2000: by the real clock the verdict of a test would hang on what else the machine does.
func init() {
	began := time.Now()
	withTimeout = func(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
		if since := time.Now().Round(0).Sub(began.Round(0)); since >= 0 && since < 24*time.Hour {
			return context.WithCancel(ctx)
		}
		return context.WithTimeout(ctx, limit)
	}
}
