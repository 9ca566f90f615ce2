package engine

import (
	"context"
	"time"
)

// newConfigure makes the chore that writes settings when the worker starts. Those that
// are so already are not written.
func (l *loop) newConfigure(now time.Time) *chore {
	c := &chore{}
	if len(l.cfg.Lasting) == 0 {
		return c
	}
	c.due = onMono(now)
	c.prepare = func(time.Time) task {
		return func(ctx context.Context) (func(time.Time), error) {
			for _, s := range l.cfg.Lasting {
				if err := l.cfg.Store.Configure(ctx, s.Lane, s.Settings); err != nil {
					return nil, err
				}
				if err := Regroup(ctx, l.cfg.Store, s.Lane.Queue, s.Settings); err != nil {
					return nil, err
				}
			}
			return func(time.Time) {}, nil
		}
	}
	return c
}
