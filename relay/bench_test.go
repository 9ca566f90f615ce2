package relay_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

const batch = 200

// batches returns jobs as devices send them: args of about 90 bytes, and no keys.
func batches(b *testing.B, n int) [][]wire.Job {
	all := make([][]wire.Job, n)
	for i := range all {
		for k := range batch {
			all[i] = append(all[i], job("measure", func(j *wire.Job) {
				// As a device makes them, since these IDs are kept in an index.
				j.ID = wire.ID(must(uuid.NewV7())(b))
				j.Args = fmt.Appendf(nil, `{"sensor":"pump-%d/flow","value":%d.25,"unit":"l/min","quality":"good","seq":%d}`, k%7, k*37%1000, i*batch+k)
			}))
		}
	}
	return all
}

// What a server does with a request of 200 jobs, and beside it what its queue does with these jobs
// alone: as they are, and with what a job of a device has. Compare by -cpuprofile: much of the elapsed time is
// that of the disk, and of the client in this process.
func BenchmarkHandler(b *testing.B) {
	b.Run("handler", func(b *testing.B) {
		s := serve(b, nil, nil)
		d := s.device(deviceName, relay.Rights{})
		d.ask()
		// The client signs a request while the time stands still: the token is in the answer to the one before.
		all := batches(b, b.N)
		b.ReportAllocs()
		b.ResetTimer()
		for _, jobs := range all {
			b.StopTimer()
			var r ratchet.Request
			d.owner, r = d.owner.Send(newID())
			h, m, err := wire.SignRequest(d.head(r), jobs, d.signer)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			w := d.deliver(m)
			b.StopTimer()
			if w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
			d.step(d.open(h, w))
			b.StartTimer()
		}
		perJob(b)
	})
	for _, more := range []bool{false, true} {
		b.Run(fmt.Sprintf("EnqueueMany/origin=%v", more), func(b *testing.B) {
			q := openQueue(b, filepath.Join(b.TempDir(), "jobs.db"), nil)
			all := make([][]errand.NewJob, b.N)
			for i, jobs := range batches(b, b.N) {
				for _, j := range jobs {
					n := errand.NewJob{Args: errand.RawArgs{OfKind: j.Kind, JSON: j.Args}}
					if more {
						n.Options = &errand.JobOptions{Origin: errand.Origin{Device: deviceName, ID: hex.EncodeToString(j.ID[:])}}
					}
					all[i] = append(all[i], n)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, jobs := range all {
				if _, err := q.EnqueueMany(b.Context(), jobs); err != nil {
					b.Fatal(err)
				}
			}
			perJob(b)
		})
	}
}

func perJob(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/job")
}
