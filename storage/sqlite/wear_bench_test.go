package sqlite_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// BenchmarkFailedAttempt leases a job and finishes it as failed, by itself: two
// commits. It reports how much of the log that takes, in KiB and by table or index in
// pages. A checkpoint writes each page that has changed once more.
func BenchmarkFailedAttempt(b *testing.B) {
	for name, f := range map[string]storage.Finish{
		"retry":       {Outcome: storage.OutcomeRetry, Failure: &storage.NewFailure{Phase: "backoff", Error: "status 503"}},
		"unavailable": {Outcome: storage.OutcomeUnavailable, Error: "no route to host"},
	} {
		b.Run(name, func(b *testing.B) {
			d := newDB(b, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed})
			s := d.open()
			enqueue(b, s, "a", 1)
			now := t0
			fail := func() {
				f.Lease = lease1(b, s, now)
				now = now.Add(time.Minute)
				f.DueAt = now
				if _, err := s.Exchange(b.Context(), now.Add(-time.Second), storage.Exchange{Finish: []storage.Finish{f}}); err != nil {
					b.Fatal(err)
				}
			}
			fail()
			before := len(d.logged())
			fail()
			names, pages := d.pages(), d.logged()[before:]
			by := map[string]int{}
			for _, p := range pages {
				by[names[p]]++
			}
			for b.Loop() {
				fail()
			}
			b.ReportMetric(float64(len(pages)*(4096+24))/1024, "KiB-log/op")
			for name, n := range by {
				b.ReportMetric(float64(n), name+"/op")
			}
		})
	}
}

// lease1 leases the one job that is due.
func lease1(b *testing.B, s storage.Store, now time.Time) storage.Lease {
	b.Helper()
	r, err := s.Exchange(b.Context(), now, storage.Exchange{LeaseDuration: 30 * time.Second, Wants: want(1, "a")})
	if err != nil || len(r.Leased) != 1 {
		b.Fatalf("%d jobs were leased, want 1: %v", len(r.Leased), err)
	}
	return r.Leased[0].Lease
}

// logged returns the numbers of the pages in the log.
func (d *db) logged() (pages []uint32) {
	d.t.Helper()
	log, err := os.ReadFile(d.path + "-wal")
	if err != nil {
		d.t.Fatal(err)
	}
	const header, frame = 32, 24
	salt := string(log[16:24])
	for at := header; at+frame+4096 <= len(log) && string(log[at+8:at+16]) == salt; at += frame + 4096 {
		pages = append(pages, binary.BigEndian.Uint32(log[at:]))
	}
	return pages
}

// pages returns which table or index each page belongs to.
func (d *db) pages() map[uint32]string {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	rows, err := raw.Query(`SELECT pageno, name FROM dbstat`)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	names := map[uint32]string{}
	for rows.Next() {
		var page uint32
		var name string
		if err := rows.Scan(&page, &name); err != nil {
			d.t.Fatal(err)
		}
		names[page] = name
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
	return names
}
