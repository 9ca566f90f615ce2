package relay_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/errandq/errand/relay"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
)

// Whatever comes in a header, nothing is enqueued unless the device has signed it, and no answer is
// that of a server that failed.
func FuzzHandler(f *testing.F) {
	s := serve(f, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	_, r := d.owner.Send(newID())
	m := must2(wire.SignRequest(d.head(r), []wire.Job{job("k")}, d.signer))
	text, signature := m.Header.Get(wire.TextHeader), m.Header.Get(wire.SignatureHeader)
	f.Add(text+" ", signature, m.Body)
	f.Add(strings.Replace(text, "send", "check", 1), signature, []byte(nil))
	f.Add(strings.Replace(text, deviceName, "x", 1), signature, m.Body)
	f.Add("", "", []byte("x"))
	f.Fuzz(func(t *testing.T, text, signature string, body []byte) {
		if text == m.Header.Get(wire.TextHeader) && signature == m.Header.Get(wire.SignatureHeader) {
			return
		}
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set(wire.TextHeader, text)
		r.Header.Set(wire.SignatureHeader, signature)
		w := httptest.NewRecorder()
		if s.h.ServeHTTP(w, r); w.Code != http.StatusBadRequest && w.Code != http.StatusUnauthorized && w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", w.Code)
		}
		s.t = t
		s.wantJobs(0)
	})
}

// Whatever a device has signed as the body of a send, it is refused as a whole, or each of its jobs
// has an outcome, and those that are enqueued are there.
func FuzzHandler_body(f *testing.F) {
	s := serve(f, nil, nil)
	d := s.device(deviceName, relay.Rights{})
	d.ask()
	f.Add(false, []byte(`[{"id":"00000000000000000000000000000001","kind":"k","args":null}]`))
	f.Add(false, []byte(`[{"id":"00000000000000000000000000000001","kind":"errand.k","args":1,"group":"g"},{"id":"00000000000000000000000000000002","kind":"k","args":1,"group":"g"}]`))
	f.Add(false, []byte(`[{"id":"00000000000000000000000000000001","kind":"k","args":{},"priority":1000,"unique":{"key":"k","on_conflict":"debounce","quiet_s":0.1}}]`))
	f.Add(true, gzipped(f, `[{"id":"00000000000000000000000000000001","kind":"k","args":[1]}]`))
	f.Add(true, []byte{})
	f.Fuzz(func(t *testing.T, zip bool, body []byte) {
		d.t, s.t = t, t
		e := wire.Identity
		if zip {
			e = wire.Gzip
		}
		before := s.info(deviceName).Counts.Enqueued
		w := d.deliver(d.raw(e, body))
		switch w.Code {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if got := s.info(deviceName).Counts.Enqueued; got != before {
				t.Errorf("%d jobs are enqueued, and were %d", got, before)
			}
		case http.StatusOK:
			_, set := d.ask()
			enqueued := int64(strings.Count(outcomes(set.Verdicts), "e"))
			if got := s.info(deviceName).Counts.Enqueued; got != before+enqueued {
				t.Errorf("%d jobs are enqueued, and were %d, by verdicts %+v", got, before, set.Verdicts)
			}
			for _, v := range set.Verdicts {
				if v.Outcome < ratchet.Enqueued || v.Outcome > ratchet.Later {
					t.Errorf("verdict %+v", v)
				}
			}
		default:
			t.Errorf("status %d", w.Code)
		}
	})
}
