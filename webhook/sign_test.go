package webhook_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

func secret(t *testing.T, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The vectors of the Standard Webhooks project: of its specification, and of the tests of
// its library for Go.
const (
	vectorID         = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime       = 1614265330
	vectorBody       = `{"test": 2432232314}`
	vectorSecret     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorSignature  = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	vectorPrivate    = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
	vectorSignature2 = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
)

func TestSign_vectors(t *testing.T) {
	got, err := webhook.Sign(vectorID, time.Unix(vectorTime, 999), []byte(vectorBody), secret(t, vectorSecret), secret(t, vectorPrivate))
	if want := vectorSignature + " " + vectorSignature2; err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestSign_refused(t *testing.T) {
	good := webhook.NewSecret()
	_, public := webhook.NewKeyPair()
	now := time.Unix(vectorTime, 0)
	for _, test := range []struct {
		id      string
		at      time.Time
		secrets []webhook.Secret
		fields  []string
	}{
		{"", now, []webhook.Secret{good}, []string{"id"}},
		{"a.b", now, []webhook.Secret{good}, []string{"id"}},
		{"a b", now, []webhook.Secret{good}, []string{"id"}},
		{"a\r\nX-Evil: 1", now, []webhook.Secret{good}, []string{"id"}},
		{strings.Repeat("x", 129), now, []webhook.Secret{good}, []string{"id"}},
		{"a", time.Time{}, []webhook.Secret{good}, []string{"at"}},
		{"a", now, nil, []string{"secrets"}},
		{"a", now, slices.Repeat([]webhook.Secret{good}, 17), []string{"secrets"}},
		{"a", now, []webhook.Secret{good, public, {}}, []string{"secrets[1]", "secrets[2]"}},
		{"é", time.Unix(-1, 0), nil, []string{"id", "at", "secrets"}},
	} {
		s, err := webhook.Sign(test.id, test.at, nil, test.secrets...)
		if got := fields(err); s != "" || !slices.Equal(got, test.fields) {
			t.Errorf("%q: %q, %v: want faults of %v", test.id, s, err, test.fields)
		}
	}
	if _, err := webhook.Sign(strings.Repeat("x", 128), now, nil, slices.Repeat([]webhook.Secret{good}, 16)...); err != nil {
		t.Error(err)
	}
}

// fields returns the fields that an error says are wrong.
func fields(err error) (all []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if e, ok := errors.AsType[*errand.FieldError](err); ok {
				all = append(all, e.Field)
			}
		}
	}
	return all
}
