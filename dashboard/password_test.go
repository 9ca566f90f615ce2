package dashboard

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// However many addresses send wrong passwords, few are kept.
func TestTries_bound(t *testing.T) {
	var all tries
	for i := range uint32(3 * mostAddresses) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], i)
		if !all.take(netip.AddrFrom4(a)) {
			t.Fatalf("address %d is locked out for others", i)
		}
	}
	if n := len(all.by); n > mostAddresses {
		t.Errorf("%d addresses are kept", n)
	}
}
