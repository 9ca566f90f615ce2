// Package packed writes samples of the numbers of lanes as a file keeps them.
//
// They are a byte for the version of the form, and of each lane, as varints: its number, then
// those of [storage.SampledLane] in the order of fields, and when its oldest job was due in
// microseconds, or 0. Of nothing that is known they are empty.
package packed

import (
	"encoding/binary"
	"time"

	"github.com/errandq/errand/storage"
)

const version = 1

// New returns a sample of no lane.
func New() []byte { return []byte{version} }

// Append appends the numbers of a lane. What is below 0, as it is only in a damaged file, becomes 0.
func Append(out []byte, lane int64, l *storage.SampledLane) []byte {
	out = binary.AppendUvarint(out, uint64(lane))
	for _, n := range numbers(l) {
		out = binary.AppendUvarint(out, uint64(max(*n, 0)))
	}
	due := int64(0)
	if !l.OldestDue.IsZero() {
		due = max(l.OldestDue.UnixMicro(), 0)
	}
	return binary.AppendUvarint(out, uint64(due))
}

// Read calls f for each lane. It reports whether the sample could be read to its end.
func Read(from []byte, f func(lane int64, l *storage.SampledLane)) bool {
	if len(from) == 0 {
		return true
	}
	if from[0] != version {
		return false
	}
	for rest := from[1:]; len(rest) > 0; {
		var lane, due int64
		var l storage.SampledLane
		for _, n := range append(append([]*int64{&lane}, numbers(&l)...), &due) {
			v, size := binary.Uvarint(rest)
			if size <= 0 || int64(v) < 0 {
				return false
			}
			*n, rest = int64(v), rest[size:]
		}
		if due != 0 {
			l.OldestDue = time.UnixMicro(due).UTC()
		}
		f(lane, &l)
	}
	return true
}

func numbers(l *storage.SampledLane) []*int64 {
	t := &l.Total
	return []*int64{&t.Enqueued, &t.Done, &t.Cancelled, &t.Expired, &t.Dead, &t.Failed, &l.Scheduled, &l.Ready, &l.Running, &l.Blocked, &l.Dead}
}
