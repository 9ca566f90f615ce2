package packed_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/packed"
)

// What is written is read again, and no part of it passes for the whole.
func TestRead(t *testing.T) {
	want := map[int64]storage.SampledLane{
		1: {Total: storage.Totals{Enqueued: 1 << 40, Done: 2, Cancelled: 3, Expired: 4, Dead: 5, Failed: 6}, Scheduled: 7, Ready: 8, Running: 9, Blocked: 10, Dead: 11,
			OldestDue: time.Date(2026, 11, 29, 12, 0, 0, 1000, time.UTC)},
		201: {},
	}
	of1, of201 := want[1], want[201]
	all := packed.Append(packed.Append(packed.New(), 1, &of1), 201, &of201)
	got := map[int64]storage.SampledLane{}
	if !packed.Read(all, func(lane int64, l *storage.SampledLane) { got[lane] = *l }) || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	ends := map[int]bool{0: true, 1: true, len(packed.Append(packed.New(), 1, &of1)): true, len(all): true}
	for n := range all {
		if packed.Read(all[:n], func(int64, *storage.SampledLane) {}) != ends[n] {
			t.Errorf("of %d of %d bytes it is wrong whether they can be read", n, len(all))
		}
	}
	all[0]++
	if packed.Read(all, func(int64, *storage.SampledLane) {}) {
		t.Error("another version can be read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{1, 1, 2, 3})
	f.Fuzz(func(t *testing.T, from []byte) {
		packed.Read(from, func(_ int64, l *storage.SampledLane) {
			for _, n := range []int64{l.Total.Enqueued, l.Total.Failed, l.Dead} {
				if n < 0 {
					t.Errorf("%+v", *l)
				}
			}
		})
	})
}
