package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/webhook"
)

// received returns a request that was signed at a time.
func received(t *testing.T, at time.Time, body string, secrets ...webhook.Secret) *http.Request {
	t.Helper()
	signature, err := webhook.Sign("msg_1", at, []byte(body), secrets...)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/hook", strings.NewReader(body))
	r.Header.Set("webhook-id", "msg_1")
	r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	r.Header.Set("webhook-signature", signature)
	return r
}

func TestVerify_vector(t *testing.T) {
	for _, test := range []struct{ secret, signature string }{
		{vectorSecret, vectorSignature}, {vectorPrivate, vectorSignature2},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(vectorBody))
		r.Header.Set("webhook-id", vectorID)
		r.Header.Set("webhook-timestamp", strconv.Itoa(vectorTime))
		r.Header.Set("webhook-signature", test.signature)
		body, err := webhook.Verify(r, []webhook.Secret{secret(t, test.secret)}, time.Since(time.Unix(vectorTime, 0))+time.Minute)
		if err != nil || string(body) != vectorBody {
			t.Errorf("%s: %q, %v", test.signature, body, err)
		}
	}
}

// Any of the secrets of the receiver verifies any of the signatures of the sender, as far
// as their kinds belong together.
func TestVerify_secrets(t *testing.T) {
	private, public := webhook.NewKeyPair()
	_, otherPublic := webhook.NewKeyPair()
	old, current, other := webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()
	all := func(s ...webhook.Secret) []webhook.Secret { return s }
	for _, test := range []struct {
		name           string
		sender, knower []webhook.Secret
		want           error
	}{
		{"one", all(current), all(current), nil},
		{"another", all(current), all(other), webhook.ErrSignature},
		{"sender rotates", all(current, old), all(old), nil},
		{"receiver rotates", all(old), all(current, old), nil},
		{"both kinds", all(current, private), all(public), nil},
		{"both kinds, the other", all(current, private), all(current), nil},
		{"private counts as public", all(private), all(private), nil},
		{"another public key", all(private), all(otherPublic), webhook.ErrSignature},
		{"other kinds", all(private), all(current), webhook.ErrSignature},
		{"other kinds, turned", all(current), all(public), webhook.ErrSignature},
	} {
		body, err := webhook.Verify(received(t, time.Now(), "text", test.sender...), test.knower, 0)
		if !errors.Is(err, test.want) || (err == nil) != (string(body) == "text") {
			t.Errorf("%s: %q, %v, want %v", test.name, body, err, test.want)
		}
	}
}

func TestVerify_changed(t *testing.T) {
	s := webhook.NewSecret()
	good := received(t, time.Now(), "1674087231.text", s)
	signature := good.Header.Get("webhook-signature")
	set := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
	}
	timestamp := good.Header.Get("webhook-timestamp")
	for _, test := range []struct {
		name   string
		change func(r *http.Request)
		want   error
	}{
		{"nothing", func(*http.Request) {}, nil},
		{"body", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("1674087231.texT")) }, webhook.ErrSignature},
		{"body longer", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("1674087231.text ")) }, webhook.ErrSignature},
		{"no body", func(r *http.Request) { r.Body = nil }, webhook.ErrSignature},
		{"id", set("webhook-id", "msg_2"), webhook.ErrSignature},
		// The signature fits this too: msg_1.TIME as the ID, a time of the body's.
		{"id moved", func(r *http.Request) {
			set("webhook-id", "msg_1."+timestamp)(r)
			set("webhook-timestamp", "1674087231")(r)
			r.Body = io.NopCloser(strings.NewReader("text"))
		}, webhook.ErrHeaders},
		{"no id", set("webhook-id"), webhook.ErrHeaders},
		{"empty id", set("webhook-id", ""), webhook.ErrHeaders},
		{"two ids", set("webhook-id", "msg_1", "msg_2"), webhook.ErrHeaders},
		{"no timestamp", set("webhook-timestamp"), webhook.ErrHeaders},
		{"two timestamps", set("webhook-timestamp", timestamp, timestamp), webhook.ErrHeaders},
		{"text as timestamp", set("webhook-timestamp", "now"), webhook.ErrHeaders},
		{"plus", set("webhook-timestamp", "+"+timestamp), webhook.ErrHeaders},
		{"zero", set("webhook-timestamp", "0"+timestamp), webhook.ErrHeaders},
		{"negative", set("webhook-timestamp", "-1"), webhook.ErrHeaders},
		{"fraction", set("webhook-timestamp", timestamp+".5"), webhook.ErrHeaders},
		{"far future", set("webhook-timestamp", "9223372036854775807"), webhook.ErrHeaders},
		{"last second", set("webhook-timestamp", "253402300799"), webhook.ErrTooNew},
		{"first second", set("webhook-timestamp", "0"), webhook.ErrTooOld},
		{"timestamp", func(r *http.Request) {
			n, _ := strconv.Atoi(timestamp)
			set("webhook-timestamp", strconv.Itoa(n-1))(r)
		}, webhook.ErrSignature},
		{"no signature", set("webhook-signature"), webhook.ErrHeaders},
		{"spaces", set("webhook-signature", "  "), webhook.ErrSignature},
		{"two headers of signatures", set("webhook-signature", signature, signature), webhook.ErrHeaders},
		{"empty signature", set("webhook-signature", "v1,"), webhook.ErrSignature},
		{"no version", set("webhook-signature", strings.TrimPrefix(signature, "v1,")), webhook.ErrSignature},
		{"another version", set("webhook-signature", "v2"+strings.TrimPrefix(signature, "v1")), webhook.ErrSignature},
		{"the version of ed25519", set("webhook-signature", "v1a"+strings.TrimPrefix(signature, "v1")), webhook.ErrSignature},
		{"part", set("webhook-signature", signature[:20]), webhook.ErrSignature},
		{"no base64", set("webhook-signature", signature+"!"), webhook.ErrSignature},
		{"the last of 16", set("webhook-signature", strings.Repeat("v1,AAAA ", 13)+"v9,new v1, "+signature), nil},
		{"too many", set("webhook-signature", strings.Repeat("v1,AAAA ", 16)+signature), webhook.ErrHeaders},
	} {
		r := good.Clone(t.Context())
		r.Body = io.NopCloser(strings.NewReader("1674087231.text"))
		test.change(r)
		body, err := webhook.Verify(r, []webhook.Secret{s}, time.Hour)
		if !errors.Is(err, test.want) || (err == nil) != (body != nil) {
			t.Errorf("%s: %q, %v, want %v", test.name, body, err, test.want)
		}
	}
}

func TestVerify_tolerance(t *testing.T) {
	s := webhook.NewSecret()
	for _, test := range []struct {
		tolerance, wait time.Duration
		want            error
	}{
		{0, 0, nil},
		{0, 5 * time.Minute, nil},
		{0, 5*time.Minute + time.Millisecond, webhook.ErrTooOld},
		{0, -5 * time.Minute, nil},
		{0, -5*time.Minute - time.Second, webhook.ErrTooNew},
		{time.Second, time.Second, nil},
		{time.Second, 1001 * time.Millisecond, webhook.ErrTooOld},
		{time.Second, -2 * time.Second, webhook.ErrTooNew},
		{365 * 24 * time.Hour, 364 * 24 * time.Hour, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := received(t, time.Now().Add(-test.wait.Truncate(time.Second)), "", s)
			time.Sleep(max(0, test.wait) % time.Second)
			if _, err := webhook.Verify(r, []webhook.Secret{s}, test.tolerance); !errors.Is(err, test.want) {
				t.Errorf("tolerance %v, %v later: %v, want %v", test.tolerance, test.wait, err, test.want)
			}
		})
	}
}

func TestVerify_size(t *testing.T) {
	s := webhook.NewSecret()
	whole := strings.Repeat("x", webhook.MaxBody)
	body, err := webhook.Verify(received(t, time.Now(), whole, s), []webhook.Secret{s}, 0)
	if err != nil || string(body) != whole {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	r := received(t, time.Now(), whole+"x", s)
	if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); !errors.Is(err, webhook.ErrTooLarge) {
		t.Errorf("a byte more: %v", err)
	}
	r = received(t, time.Now(), whole+"x", s)
	r.ContentLength = -1 // chunked
	if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); !errors.Is(err, webhook.ErrTooLarge) {
		t.Errorf("a byte more, chunked: %v", err)
	}
	r = received(t, time.Now(), "0123456789", s)
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 9)
	if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); !errors.Is(err, webhook.ErrTooLarge) {
		t.Errorf("beyond a limit of the receiver: %v", err)
	}
}

// A request that is refused by its headers costs no read, however long its body is; what
// fails in reading is not a refusal.
func TestVerify_reading(t *testing.T) {
	s := webhook.NewSecret()
	broken := errors.New("connection lost")
	r := received(t, time.Now(), "", s)
	r.Body = io.NopCloser(iotest.ErrReader(broken))
	if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); !errors.Is(err, broken) || errors.Is(err, webhook.ErrSignature) {
		t.Errorf("a body that cannot be read: %v", err)
	}
	for _, at := range []time.Time{time.Unix(1, 0), time.Now().Add(time.Hour)} {
		r = received(t, at, "", s)
		r.Body = io.NopCloser(iotest.ErrReader(broken))
		if _, err := webhook.Verify(r, []webhook.Secret{s}, 0); err == nil || errors.Is(err, broken) {
			t.Errorf("the body was read: %v", err)
		}
	}
}

// Misuse by the receiver accepts nothing.
func TestVerify_misuse(t *testing.T) {
	s := webhook.NewSecret()
	for _, test := range []struct {
		secrets   []webhook.Secret
		tolerance time.Duration
		want      []string
	}{
		{nil, 0, []string{"secrets"}},
		{[]webhook.Secret{s, {}}, 0, []string{"secrets[1]"}},
		{[]webhook.Secret{s}, -1, []string{"tolerance"}},
		{[]webhook.Secret{{}}, -1, []string{"secrets[0]", "tolerance"}},
	} {
		body, err := webhook.Verify(received(t, time.Now(), "text", s), test.secrets, test.tolerance)
		if got := fields(err); body != nil || !slices.Equal(got, test.want) {
			t.Errorf("%v, %v: %q, %v: want faults of %v", test.secrets, test.tolerance, body, err, test.want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1a,AAAA", []byte("{}"))
	f.Add("", "-1", ", ,", []byte(nil))
	s := webhook.NewSecret()
	_, public := webhook.NewKeyPair()
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		r.Header = http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
		if _, err := webhook.Verify(r, []webhook.Secret{s, public}, 1<<62); err == nil {
			t.Errorf("a request that nobody signed was verified")
		}
	})
}
