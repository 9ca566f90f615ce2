package storagetest

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

func TestMemory_overlapping(t *testing.T) {
	RunOverlapping(t, func(*testing.T) DB { return NewMemory() }, 50)
}

func TestMemory_bareOverlapping(t *testing.T) {
	RunOverlapping(t, func(*testing.T) DB { return bareDB{NewMemory()} }, 20)
}

// TestMemory_plainOverlapping leaves out all features: nothing else is called then.
func TestMemory_plainOverlapping(t *testing.T) {
	RunOverlapping(t, func(*testing.T) DB { return plainDB{NewMemory()} }, 20, Without(features...))
}

type plainDB struct{ *Memory }

func (p plainDB) Open() storage.Store { return &plainStore{of: p.OpenBare()} }

func (p plainDB) Kill(s storage.Store)   { p.Memory.Kill(s.(*plainStore).of) }
func (p plainDB) Reboot(s storage.Store) { p.Memory.Reboot(s.(*plainStore).of) }

// plainStore panics with a call of any other method.
type plainStore struct {
	storage.Store
	of storage.Store
}

func (p *plainStore) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	return p.of.Enqueue(ctx, now, jobs)
}

func (p *plainStore) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	return p.of.Exchange(ctx, now, x)
}

func (p *plainStore) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	return p.of.Reclaim(ctx, now, mono, lease, limit)
}

func (p *plainStore) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	return p.of.Job(ctx, id)
}

func (p *plainStore) Counts(ctx context.Context) ([]storage.Count, error) { return p.of.Counts(ctx) }

func (p *plainStore) Close() error { return p.of.Close() }
