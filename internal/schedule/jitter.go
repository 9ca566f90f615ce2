package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"
)

// JitterFor returns the delay by which the job of a tick is spread: at least zero,
// less than max, whole microseconds. It depends only on its arguments, so that
// processes of all versions and machines agree about it.
//
// It is the first 64 bits of the SHA-256 of the tick as a Unix time in seconds
// (64 bits, big-endian) and the name, as a fraction of max.
func JitterFor(name string, tick time.Time, max time.Duration) time.Duration {
	if max <= 0 {
		return 0
	}
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, uint64(tick.Unix())), name...))
	d, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), uint64(max))
	return time.Duration(d).Truncate(time.Microsecond)
}
