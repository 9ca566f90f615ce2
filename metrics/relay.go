package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

const (
	// mostDevices is how many devices are told apart: the first that were added. The others are summed.
	mostDevices = 200
	// mostRelayed is how many relayed queues have numbers: the first by name.
	mostRelayed = 50
)

// relayed is what a look has of package relay: the devices that send jobs to the queue, and the
// queues whose jobs go to a server.
type relayed struct {
	devices []relay.DeviceInfo
	queues  []relay.QueueInfo
}

// readRelayed reads it. What cannot be read in time, or not at all, is left out: the rest does not depend on it.
// If there is nothing, that costs two reads.
func readRelayed(ctx context.Context, q *errand.Queue) (r relayed) {
	var err error
	if r.devices, err = relay.Devices(ctx, q); err != nil {
		r.devices = nil // a part of them would have a sum fall
	}
	if r.queues, err = relay.Queues(ctx, q); err != nil {
		r.queues = nil
	}
	return r
}

// deviceSum is what the devices of a series have together.
type deviceSum struct {
	relay.Counts
	seen time.Time // the latest
	held int
}

// assignDevices maps the devices that are new to the labels of their series, in the order in which they were added.
func (s *series) assignDevices(all []relay.DeviceInfo) {
	if s.devices == nil {
		s.devices = map[string]string{}
	}
	var fresh []*relay.DeviceInfo
	for i := range all {
		if _, ok := s.devices[all[i].Name]; !ok {
			fresh = append(fresh, &all[i])
		}
	}
	slices.SortFunc(fresh, func(a, b *relay.DeviceInfo) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	for _, d := range fresh {
		as := d.Name
		if len(s.devices) >= mostDevices {
			as = other
		}
		s.devices[d.Name] = as
	}
}

// relays adds the samples of devices and of relayed queues, if there are any.
func (s *series) relays(all []Family, now *relayed) {
	s.assignDevices(now.devices)
	states, sums := map[string]float64{"active": 0, "full": 0, "held": 0, "revoked": 0}, map[string]*deviceSum{}
	for i := range now.devices {
		d := &now.devices[i]
		switch {
		case !d.RevokedAt.IsZero():
			states["revoked"]++
		case d.Held > 0:
			states["held"]++
		case d.Full:
			states["full"]++
		default:
			states["active"]++
		}
		as := s.devices[d.Name]
		of := sums[as]
		if of == nil {
			of = &deviceSum{}
			sums[as] = of
		}
		of.Add(d.Counts)
		of.held += d.Held
		if d.LastSeen.After(of.seen) {
			of.seen = d.LastSeen
		}
	}
	if len(now.devices) > 0 {
		for _, state := range slices.Sorted(maps.Keys(states)) {
			all[famDevices].add(states[state], state)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(sums)) {
		sums[device].samples(all, device)
	}
	for i := range now.queues[:min(len(now.queues), mostRelayed)] {
		q := &now.queues[i]
		all[famKept].add(float64(q.Kept), q.Queue)
		all[famMissing].add(float64(q.Missing), q.Queue)
		for j, stream := range q.Streams {
			held, number := 0.0, strconv.Itoa(j)
			if stream.Held {
				held = 1
			}
			all[famStreamHeld].add(held, q.Queue, number)
			if !stream.LastSeen.IsZero() {
				all[famStreamSeen].add(seconds(stream.LastSeen), q.Queue, number)
			}
		}
	}
}

// samples adds the samples of a series of devices.
func (s *deviceSum) samples(all []Family, device string) {
	if !s.seen.IsZero() {
		all[famDeviceSeen].add(seconds(s.seen), device)
	}
	all[famDeviceHeld].add(float64(s.held), device)
	all[famDeviceJobs].add(float64(s.Enqueued), device, "enqueued")
	all[famDeviceJobs].add(float64(s.Duplicates), device, "duplicate")
	all[famDeviceJobs].add(float64(s.Refused), device, "refused")
	all[famDeviceJobs].add(float64(s.Later), device, "later")
	all[famDeviceBytes].add(float64(s.Bytes), device)
}
