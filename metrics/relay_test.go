package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

func device(name string, added int64, held int, counts relay.Counts) relay.DeviceInfo {
	return relay.DeviceInfo{Name: name, CreatedAt: time.Unix(added, 0), LastSeen: time.Unix(1000+added, 0), Held: held, Counts: counts}
}

// relayText returns the lines about devices and relayed queues.
func relayText(s *series, now relayed) string {
	var b strings.Builder
	for line := range strings.Lines(string(appendText(nil, s.families(&state{relayed: now}), nil))) {
		if strings.HasPrefix(line, "errand_relay") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A server has the numbers of its devices.
func TestRelayed_devices(t *testing.T) {
	revoked := device("pump-19", 3, 1, relay.Counts{})
	revoked.RevokedAt, revoked.LastSeen = time.Unix(9, 0), time.Time{}
	full := device("pump-20", 4, 0, relay.Counts{})
	full.Full = true
	got := relayText(&series{}, relayed{devices: []relay.DeviceInfo{
		device("pump-17", 1, 2, relay.Counts{Enqueued: 5, Duplicates: 1, Refused: 2, Later: 3, Bytes: 1234}),
		device("pump-18", 2, 0, relay.Counts{}), revoked, full,
	}})
	for _, want := range []string{
		`errand_relay_devices{state="active"} 1`, `errand_relay_devices{state="held"} 1`, `errand_relay_devices{state="full"} 1`, `errand_relay_devices{state="revoked"} 1`,
		`errand_relay_device_last_seen_timestamp_seconds{device="pump-17"} 1001`, `errand_relay_device_held_streams{device="pump-17"} 2`,
		`errand_relay_device_jobs_total{device="pump-17",outcome="enqueued"} 5`, `errand_relay_device_jobs_total{device="pump-17",outcome="duplicate"} 1`,
		`errand_relay_device_jobs_total{device="pump-17",outcome="refused"} 2`, `errand_relay_device_jobs_total{device="pump-17",outcome="later"} 3`,
		`errand_relay_device_bytes_total{device="pump-17"} 1234`, `errand_relay_device_held_streams{device="pump-18"} 0`, `errand_relay_device_held_streams{device="pump-19"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("without %s: %s", want, got)
		}
	}
	if strings.Contains(got, `seen_timestamp_seconds{device="pump-19"`) || strings.Contains(got, "errand_relay_stream") || strings.Contains(got, "errand_relay_queue") {
		t.Error(got)
	}
}

// A device has the numbers of its streams and of what its server lacks.
func TestRelayed_queues(t *testing.T) {
	got := relayText(&series{}, relayed{queues: []relay.QueueInfo{{
		Queue: "up", Kept: 3, Missing: 1, Streams: []relay.OutInfo{{LastSeen: time.Unix(50, 0), N: 7}, {Held: true}},
	}}})
	want := `errand_relay_stream_last_seen_timestamp_seconds{queue="up",stream="0"} 50
errand_relay_stream_held{queue="up",stream="0"} 0
errand_relay_stream_held{queue="up",stream="1"} 1
errand_relay_queue_kept{queue="up"} 3
errand_relay_queue_missing{queue="up"} 1
`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	many := make([]relay.QueueInfo, 60)
	for i := range many {
		many[i].Queue = fmt.Sprint("q", i)
	}
	if n := strings.Count(relayText(&series{}, relayed{queues: many}), "errand_relay_queue_kept"); n != 50 {
		t.Errorf("%d queues have numbers", n)
	}
}

// 200 devices have series of their own: the first that were added, whatever their names. A device keeps its
// series, so that no sum falls, and all others are summed.
func TestRelayed_bounded(t *testing.T) {
	var all []relay.DeviceInfo
	for i := range int64(250) {
		all = append(all, device(fmt.Sprintf("d%03d", 999-i), i, 1, relay.Counts{Enqueued: 2}))
	}
	s := series{}
	for _, now := range [][]relay.DeviceInfo{all[:10], all, append([]relay.DeviceInfo{device("early", -1, 1, relay.Counts{Enqueued: 2})}, all...)} {
		got := relayText(&s, relayed{devices: now})
		summed := max(len(now)-200, 0)
		if n := strings.Count(got, `outcome="enqueued"`); n != min(len(now), 200)+min(summed, 1) {
			t.Errorf("%d series of %d devices", n, len(now))
		}
		if !strings.Contains(got, `_jobs_total{device="d999",outcome="enqueued"} 2`+"\n") || summed > 0 && (!strings.Contains(got, `_jobs_total{device="d800",outcome="enqueued"} 2`+"\n") ||
			!strings.Contains(got, fmt.Sprintf("_jobs_total{device=\"other\",outcome=\"enqueued\"} %d\n", 2*summed)) || !strings.Contains(got, fmt.Sprintf("held_streams{device=\"other\"} %d\n", summed))) {
			t.Errorf("of %d devices: %s", len(now), got)
		}
	}
}

// Without devices and relayed queues there is not a line about them.
func TestRelayed_none(t *testing.T) {
	s := series{most: 2}
	if text := string(appendText(nil, s.families(&state{lanes: []errand.LaneTotals{total(1, "first")}}), nil)); strings.Contains(text, "relay") {
		t.Error(text)
	}
}
