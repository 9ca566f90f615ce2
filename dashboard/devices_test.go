package dashboard_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/dashboard"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/storage"
)

// deviceKey is a key that a device and its server both have.
var deviceKey = "hmac-sha256:" + hex.EncodeToString([]byte(token+token+"00"))

// addDevice adds a device with a key that nobody is to see.
func addDevice(t *testing.T, q *errand.Queue, name string) {
	t.Helper()
	d := relay.Device{Name: name, Key: deviceKey, Rights: relay.Rights{Kinds: []string{"letter"}, BytesADay: 1 << 20, SharedKeys: []string{hostile}}}
	if err := relay.PutDevice(t.Context(), q, d); err != nil {
		t.Fatal(err)
	}
}

// putEntry writes an entry of package relay.
func putEntry(t *testing.T, q *errand.Queue, class, name string, doc []byte) {
	t.Helper()
	topics, err := door.Open[errand.NewJob](q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.PutEntries(t.Context(), []storage.Entry{{Class: class, Name: name, Doc: doc}}); err != nil {
		t.Fatal(err)
	}
}

// addStream adds a stream of a device as its server keeps it: of its jobs 7,001 were enqueued, 2 were
// duplicates, 3 refused and 4 told to come later.
func addStream(t *testing.T, q *errand.Queue, device string, number int, held bool) {
	t.Helper()
	doc := []byte{1, 0}
	if held {
		doc[1] = 1
	}
	doc = append(append(doc, 9), make([]byte, 32)...) // N, T and P
	for _, n := range []uint64{0, 7001, 2, 3, 4, 123456, 0, 0} {
		doc = binary.AppendUvarint(doc, n)
	}
	putEntry(t, q, "relay-stream", device+"/"+hex.EncodeToString(binary.BigEndian.AppendUint16(make([]byte, 14), uint16(number))), doc)
}

// addRelayed adds what a device has of a queue whose jobs go to a server, with two streams.
func addRelayed(t *testing.T, q *errand.Queue, queue string, held, missing bool) {
	t.Helper()
	putEntry(t, q, "relay-queue", queue, []byte(`{"device":"pump-17","server":"jobs.example.org","streams":2}`))
	for i := range 2 {
		doc := fmt.Sprintf(`{"id":"%032x","n":%d,"token":"%032x","held":%t,"owner":"%032x"}`, i+1, 5*i, 77, held && i == 1, 78)
		putEntry(t, q, "relay-out", fmt.Sprintf("%s/%02d", queue, i), []byte(doc))
	}
	if missing {
		putEntry(t, q, "relay-missing", fmt.Sprintf("%032x/%020d", 1, 4), fmt.Appendf(nil, `{"queue":%q,"after":2,"before":4}`, queue))
	}
}

// pageSays checks what a page has, and what it has not.
func pageSays(t *testing.T, h http.Handler, at string, with, without []string) {
	t.Helper()
	status, text := get(h, at)
	if status != 200 {
		t.Errorf("%s: %d", at, status)
	}
	for _, s := range with {
		if !strings.Contains(text, s) {
			t.Errorf("%s is without %q: %s", at, s, text)
		}
	}
	for _, s := range without {
		if strings.Contains(text, s) {
			t.Errorf("%s has %q: %s", at, s, text)
		}
	}
}

// A server shows its devices with their streams and sums, and what each role may do to them.
func TestDevices(t *testing.T) {
	q := open(t)
	add(t, q, mail{"a"}, &errand.JobOptions{Delay: time.Hour})
	for _, name := range []string{"pump-17", "pump-18", "quiet"} {
		addDevice(t, q, name)
	}
	addStream(t, q, "pump-17", 1, false)
	addStream(t, q, "pump-17", 2, true)
	addStream(t, q, "pump-18", 3, false)
	if err := relay.Revoke(t.Context(), q, "pump-18"); err != nil {
		t.Fatal(err)
	}
	const acceptIt, revokeIt = `value="accept"`, `value="revoke"`
	secret := []string{deviceKey[len("hmac-sha256:"):], token, "<script>"}
	admin := as(q, dashboard.Admin)
	pageSays(t, admin, "/devices", []string{"1 held", "revoked", "may send", `data-label="Enqueued">14,002<`, `data-label="Refused">6<`, `data-label="Bytes">241 KiB<`, acceptIt, revokeIt, `<a href="device?name=pump-17">`}, append(secret, "Queues whose jobs go"))
	pageSays(t, admin, "/device?name=pump-17", []string{"hmac-sha256", "letter", "1,024 KiB", "&lt;script&gt;", strings.Repeat("0", 30) + "02", `data-label="Enqueued">7,001<`, `data-label="Later">4<`, acceptIt, revokeIt}, secret)
	pageSays(t, admin, "/device?name=pump-18", []string{"revoked"}, append(secret, acceptIt, revokeIt))
	pageSays(t, admin, "/device?name=quiet", []string{"has sent nothing yet", revokeIt}, append(secret, acceptIt))
	pageSays(t, as(q, dashboard.Operator), "/devices", []string{acceptIt}, append(secret, revokeIt))
	pageSays(t, as(q, dashboard.Viewer), "/devices", []string{"1 held"}, append(secret, acceptIt, revokeIt))
	pageSays(t, dashboard.Handler(q, &dashboard.Options{Auth: dashboard.Anyone(dashboard.Admin), Logger: quiet, ReadOnly: true}), "/device?name=pump-17", []string{"1 held"}, []string{acceptIt, revokeIt})
	if status, text := get(admin, "/device?name=none"); status != 404 || !strings.Contains(text, "There is no device of this name") {
		t.Errorf("%d %s", status, text)
	}
	var got struct {
		Devices []relay.DeviceInfo
		Queues  []relay.QueueInfo
	}
	if _, text := get(admin, "/devices?format=json"); json.Unmarshal([]byte(text), &got) != nil || len(got.Devices) != 3 || got.Devices[0].Held != 1 || len(got.Devices[0].Streams) != 2 || got.Queues == nil || strings.Contains(text, token) {
		t.Errorf("JSON %s", text)
	}
	pageSays(t, admin, "/", []string{"1 thing to look at.", "device pump-17, held</p>", "See the device", `<a href="./devices">Devices <span class="mark held">`}, nil)
	for n := range 1000 {
		addStream(t, q, "quiet", n+4, false)
	}
	pageSays(t, admin, "/devices", []string{"full: it may begin no more streams"}, nil)
	addStream(t, q, "quiet", 4000, true)
	pageSays(t, as(q, dashboard.Viewer), "/", []string{"2 devices, held</p>", "See the devices"}, nil)
}

// A device shows the queues whose jobs go to a server, what waits there, what is held, and what the
// server lacks.
func TestDevices_relayed(t *testing.T) {
	q := open(t)
	addRelayed(t, q, "up", true, true)
	addRelayed(t, q, "well", false, false)
	for range 3 {
		add(t, q, mail{"a"}, &errand.JobOptions{Queue: "up"})
	}
	h := as(q, dashboard.Admin)
	pageSays(t, h, "/devices", []string{"jobs.example.org", "pump-17", `<a href="jobs?queue=up">3</a>`, `<a href="jobs?queue=well">0</a>`, "found 1 time<", "nothing</dd>", fmt.Sprintf("%032x", 2), "held</span>"}, []string{"Devices that send", fmt.Sprintf("%032x", 77)})
	pageSays(t, h, "/", []string{"held by the server", "the server lacks jobs", "errand relay resend"}, nil)
	if _, text := get(h, "/"); strings.Count(text, `lane?queue=well`) > 0 {
		t.Errorf("a queue without trouble is shown: %s", text)
	}
}

// Accept and revoke are asked for, done, told and kept in the audit.
func TestDevices_act(t *testing.T) {
	q := open(t)
	addDevice(t, q, "pump-17")
	addStream(t, q, "pump-17", 1, true)
	addStream(t, q, "pump-17", 2, true)
	var told []dashboard.Action
	h := dashboard.Handler(q, &dashboard.Options{Logger: quiet, Auth: who("ann", dashboard.Admin), OnAction: func(a dashboard.Action) { told = append(told, a) }})
	device := func() relay.DeviceInfo {
		t.Helper()
		d, err := relay.GetDevice(t.Context(), q, "pump-17")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	form := func(do, name string) url.Values { return url.Values{"do": {do}, "device": {name}} }
	pageSays(t, h, "/", []string{"device pump-17, held</p>"}, nil)
	f := asks(t, h, form("accept", "pump-17"), "Accept device pump-17?", "2 streams of it are held.", ">Leave it held<", ">Accept the device<")
	if device().Held != 2 {
		t.Error("accepted before it was confirmed")
	}
	addStream(t, q, "pump-17", 3, true)
	f = asks(t, h, f, "What has changed meanwhile", "held streams")
	confirm(t, h, f, "Accepted: device pump-17, 3 streams.")
	pageSays(t, h, "/", []string{`<a href="./devices">Devices</a>`}, []string{"device pump-17"})
	says(t, send(h, form("accept", "pump-17")).text, "No stream of device pump-17 is held.")

	f = asks(t, h, form("revoke", "pump-17"), "Revoke device pump-17?", `class="danger"`, ">Let it send<")
	if !device().RevokedAt.IsZero() {
		t.Error("revoked before it was confirmed")
	}
	confirm(t, h, f, "Revoked: device pump-17.")
	if d := device(); d.Held != 0 || d.RevokedAt.IsZero() {
		t.Errorf("%+v", d)
	}
	says(t, send(h, form("revoke", "pump-17")).text, "Device pump-17 is revoked already.")
	says(t, send(h, form("accept", "none")).text, "There is no device none any more.")
	if a := send(h, form("revoke", "a b")); a.status != 400 {
		t.Errorf("%d %s", a.status, a.text)
	}
	if len(told) != 2 || told[0].Do != "accept" || told[1].Do != "revoke" || told[1].What != "device pump-17" || told[1].By != "ann" || told[1].Err != nil {
		t.Errorf("told %+v", told)
	}
	all, err := q.Audit(t.Context())
	if err != nil || len(all) != 2 || all[0].Do != "revoke" || all[1].Do != "accept" || all[1].What != "device pump-17" || all[1].By != "ann" {
		t.Errorf("audit %+v, %v", all, err)
	}
}

// Without devices and relayed queues no page leads to them, and looks ask for them in two reads, which
// find nothing, at most once in 10 s, and only if something was committed.
func TestDevices_none(t *testing.T) {
	bubble(t, func(t *testing.T, store *counting, q *errand.Queue, h http.Handler) {
		pageSays(t, h, "/", nil, []string{"evices"})
		if reads := store.taken(); reads["entries"] != 2 {
			t.Errorf("reads of the first look: %v", reads)
		}
		for range 20 {
			store.commit(t, q)
			time.Sleep(time.Second)
			pageSays(t, h, "/", nil, []string{"evices"})
		}
		if reads := store.taken(); reads["entries"] != 4 || reads["stats"] < 15 {
			t.Errorf("reads while something was committed: %v", reads)
		}
		pageSays(t, h, "/devices", []string{"No devices."}, nil)
	})
}

// What a device and its server keep of a job that was passed on is on the pages of both.
func TestDevices_bothSides(t *testing.T) {
	server, device := open(t), open(t)
	private, public := relay.NewKey()
	serverKey, serverPublic := relay.NewKey()
	if err := relay.PutDevice(t.Context(), server, relay.Device{Name: "pump-17", Key: public}); err != nil {
		t.Fatal(err)
	}
	h, err := relay.Handler(server, &relay.HandlerOptions{Server: "hub", Key: serverKey, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	hub := httptest.NewServer(h)
	defer hub.Close()
	w := errand.NewWorker(device, &errand.WorkerOptions{Queues: []string{"up"}, Logger: quiet})
	if err := relay.Forward(w, &relay.Options{Queue: "up", URL: hub.URL, Server: "hub", Device: "pump-17", Key: relay.KeyText(private), ServerKey: serverPublic, Streams: 1, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	done, err := device.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{errand.EventDone}}, 10)
	if err != nil {
		t.Fatal(err)
	}
	stop := runs(t, w)
	add(t, device, mail{"a"}, &errand.JobOptions{Queue: "up"})
	<-done.Events()
	stop()
	pageSays(t, as(server, dashboard.Viewer), "/device?name=pump-17", []string{`data-label="Enqueued">1<`, "goes on", "ed25519-public"}, []string{"sent nothing yet", strings.TrimPrefix(public, "ed25519-public:")})
	_, text := get(as(device, dashboard.Viewer), "/devices")
	text = plain(text)
	for _, want := range []string{"up Device pump-17 Server hub Waiting 0", "Missing on the server nothing", "goes on"} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q: %s", want, text)
		}
	}
}

// A row of a device that cannot be read is said, and keeps nobody from the rest.
func TestDevices_unreadable(t *testing.T) {
	q := open(t)
	putEntry(t, q, "relay-device", "pump-17", []byte("{"))
	h := as(q, dashboard.Viewer)
	pageSays(t, h, "/", []string{"The file is damaged."}, nil)
	pageSays(t, h, "/lanes", nil, []string{"cannot be looked at"})
	if status, text := get(h, "/devices"); status != 503 || !strings.Contains(text, "errand doctor says what is damaged") {
		t.Errorf("%d %s", status, plain(text))
	}
}
