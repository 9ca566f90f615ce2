package storagetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

func TestMemory_instancesShareTheirJobs(t *testing.T) {
	db := storagetest.NewMemory()
	a, b := db.Open(), db.Open()
	ctx, now := context.Background(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in, err := a.Enqueue(ctx, now, []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}}}
	res, err := b.Exchange(ctx, now, x)
	if err != nil || len(res.Leased) != 1 || res.Leased[0].ID != in[0].ID {
		t.Fatalf("the other instance leased %v, %v", res.Leased, err)
	}
	if err := b.(storage.Marker).Started(res.Leased[0].Lease, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	db.Kill(b)
	got, err := a.Reclaim(ctx, now, 0, time.Minute, 10)
	if err != nil || len(got) != 1 || got[0].Fate != storage.Crashed {
		t.Fatalf("reclaimed %v, %v; want the job, crashed", got, err)
	}
}
