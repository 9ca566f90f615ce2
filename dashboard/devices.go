package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/relay"
)

// relayed is what a look has of package relay: the devices that send jobs here, and the queues whose
// jobs go to a server. Most files have neither.
type relayed struct {
	devices int      // that there are
	held    []string // devices with held streams, by name
	queues  []relay.QueueInfo

	version int64 // of the file, as of what was read
	read    time.Time
}

func (r *relayed) none() bool { return r.devices == 0 && len(r.queues) == 0 }

// readRelayed reads what a look has of package relay. If there is nothing, that costs two reads.
func readRelayed(ctx context.Context, q *errand.Queue, version int64) (r relayed, err error) {
	r.version, r.read = version, time.Now()
	devices, err := relay.Devices(ctx, q)
	if errors.Is(err, errand.ErrUnsupportedDB) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.devices = len(devices)
	for i := range devices {
		if devices[i].Held > 0 {
			r.held = append(r.held, devices[i].Name)
		}
	}
	r.queues, err = relay.Queues(ctx, q)
	return r, err
}

// troubles returns what somebody should look at: devices and streams that are held, and jobs that a
// server lacks.
func (r *relayed) troubles() (all []trouble) {
	const past = "the past of a device is not what the server knows of it: its card was cloned, or a file was put back to an older copy"
	if n := int64(len(r.held)); n > 0 {
		t := trouble{What: "held", Where: "device " + r.held[0], Why: "It sends nothing: " + past + ".",
			Help: "An operator may accept the device.", See: "device" + string(query("name", r.held[0])), SeeText: "the device"}
		if n > 1 {
			t.Where, t.Why, t.See, t.SeeText = plural(n, "device"), "They send nothing: "+past+".", "devices", "the devices"
			t.Help = "An operator may accept each."
		}
		all = append(all, t)
	}
	for i := range r.queues {
		q := &r.queues[i]
		lane := errand.Lane{Queue: q.Queue}
		if n := heldOf(q); n > 0 {
			all = append(all, trouble{What: "held by the server", Lane: lane, Why: "It takes nothing of " + plural(n, "stream") + " of device " + q.Device + ": " + past + ".",
				Help: "Somebody accepts the device on the server.", See: "devices", SeeText: "the streams"})
		}
		if q.Missing > 0 {
			all = append(all, trouble{What: "the server lacks jobs", Lane: lane, Why: "The server " + q.Server + " was put back to an older copy of its file, and lacks jobs that are done here.",
				Help: "errand relay resend sends again what is still kept.", See: "devices", SeeText: "the streams"})
		}
	}
	return all
}

// heldOf returns how many streams of a relayed queue are held.
func heldOf(q *relay.QueueInfo) (n int64) {
	for _, s := range q.Streams {
		if s.Held {
			n++
		}
	}
	return n
}

// devicesData is what the list of devices shows.
type devicesData struct {
	Devices []relay.DeviceInfo
	Queues  []queueRow
	More    int // relayed queues that are not shown
	Next    string
	First   bool
}

// queueRow is a relayed queue with what waits in it.
type queueRow struct {
	relay.QueueInfo
	Waiting int64 `json:"waiting"`
}

func devices(x *request) (*content, error) {
	after := x.URL.Query().Get("after")
	d := &devicesData{First: after == ""}
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	if d.Devices, err = relay.DevicesAfter(x.Context(), x.b.q, after, jobsLimit); err != nil {
		return nil, noRelay(err)
	}
	if len(d.Devices) == jobsLimit {
		d.Next = d.Devices[jobsLimit-1].Name
	}
	queues, err := relay.Queues(x.Context(), x.b.q)
	if err != nil {
		return nil, err
	}
	queues, d.More = first(queues, jobsLimit)
	waiting := map[string]int64{}
	for i := range l.lanes {
		s := &l.lanes[i].Stats
		waiting[s.Queue] += s.Scheduled + s.Ready + s.Running + s.Blocked
	}
	for i := range queues {
		d.Queues = append(d.Queues, queueRow{queues[i], waiting[queues[i].Queue]})
	}
	return &content{data: d, json: map[string]any{"devices": append([]relay.DeviceInfo{}, d.Devices...), "next": d.Next, "queues": append([]queueRow{}, d.Queues...), "more_queues": d.More}}, nil
}

// noRelay says of a store that it keeps no devices.
func noRelay(err error) error {
	if errors.Is(err, errand.ErrUnsupportedDB) {
		return &refusal{status: http.StatusNotFound, text: "This store keeps no devices.", cause: err}
	}
	return err
}

func device(x *request) (*content, error) {
	x.settled()
	d, err := relay.GetDevice(x.Context(), x.b.q, x.URL.Query().Get("name"))
	if err != nil {
		return nil, missing(noRelay(err), "device of this name", "The page Devices has those that there are.")
	}
	return &content{title: "Device " + d.Name, data: &d, json: d}, nil
}

// deviceOf returns the device that a form names, and a plan about it, which says so if there is none.
func (x *request) deviceOf(f url.Values) (relay.DeviceInfo, *plan, error) {
	name := f.Get("device")
	d, err := relay.GetDevice(x.Context(), x.b.q, name)
	p := &plan{text: "device " + name, at: "device" + string(query("name", name))}
	if errors.Is(err, errand.ErrNotFound) {
		p.idle, p.at = "There is no device "+name+" any more.", "devices"
		return d, p, nil
	}
	return d, p, noRelay(err)
}

func accept(x *request, f url.Values) (*plan, error) {
	d, p, err := x.deviceOf(f)
	if err != nil || p.idle != "" {
		return p, err
	}
	if d.Held == 0 {
		p.idle = "No stream of device " + d.Name + " is held."
		return p, nil
	}
	p.note = plural(int64(d.Held), "stream") + " of it " + isHeld(d.Held) + ". If its card was cloned, the copy that has gone on goes on, and others begin new streams. " +
		"From then on each of its jobs is looked up before it is enqueued: one that the server still has is not enqueued again."
	p.facts = []fact{{"held streams", count(d.Held), ""}}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		n, err := relay.Accept(ctx, q, d.Name)
		if err == nil && n == 0 {
			err = declined("No stream of it is held any more.")
		}
		if n > 0 {
			out.Told = "Accepted: device " + d.Name + ", " + plural(int64(n), "stream") + "."
		}
		return err
	}
	return p, nil
}

func isHeld(n int) string {
	if n == 1 {
		return "is held"
	}
	return "are held"
}

func revoke(x *request, f url.Values) (*plan, error) {
	d, p, err := x.deviceOf(f)
	if err != nil || p.idle != "" {
		return p, err
	}
	if !d.RevokedAt.IsZero() {
		p.idle = "Device " + d.Name + " is revoked already."
		return p, nil
	}
	p.note = "The server takes nothing of it any more. Its jobs that came before stay. errand devices restore lets it send again."
	p.facts = []fact{{"key", d.KeyKind, ""}}
	p.do = func(ctx context.Context, q *errand.Queue, out *outcome) error {
		err := relay.Revoke(ctx, q, d.Name)
		if err == nil {
			out.Told = "Revoked: device " + d.Name + "."
		}
		return err
	}
	return p, nil
}
