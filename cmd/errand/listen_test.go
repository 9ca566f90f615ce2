package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/webhook"
)

// signedHeaders are those of a message at a time.
func signedHeaders(t *testing.T, s webhook.Secret, at time.Time, body string) map[string]string {
	t.Helper()
	signature, err := webhook.Sign("msg_1", at, []byte(body), s)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		webhook.HeaderID: "msg_1", webhook.HeaderTimestamp: strconv.FormatInt(at.Unix(), 10), webhook.HeaderSignature: signature,
	}
}

// What is not verified says why, and takes nothing from the script.
func TestListen_Verify(t *testing.T) {
	mine, other := webhook.NewSecret(), webhook.NewSecret()
	private, public := webhook.NewKeyPair()
	l := listen(t, mine.Reveal()+"\n\n"+public.Reveal(), "--secret-file", "-", "--status", "500,201", "--tolerance", "1m")
	const body = `{"a":1}`
	for _, c := range []struct {
		headers map[string]string
		status  int
		says    string
	}{
		{signedHeaders(t, other, time.Now(), body), 400, "not verified: no signature matches"},
		{signedHeaders(t, mine, time.Now().Add(-2*time.Minute), body), 400, "not verified: timestamp too old: signed 2m"},
		{signedHeaders(t, mine, time.Now(), body+" "), 400, "not verified: no signature matches"},
		{nil, 400, "not verified: headers missing or malformed: no webhook-id"},
		{signedHeaders(t, mine, time.Now(), body), 500, "msg_1  attempt -  verified  answered 500  7 bytes"},
		{signedHeaders(t, private, time.Now(), body), 201, "verified  answered 201"},
		{signedHeaders(t, mine, time.Now(), body), 201, "verified  answered 201"},
	} {
		status, answer := post(t, l.url, body, c.headers)
		if line := l.next(t); status != c.status || !strings.Contains(line, c.says) {
			t.Errorf("status %d, %q, want %d, %q", status, line, c.status, c.says)
		}
		if (answer == "") != (c.status != 400) {
			t.Errorf("answered %d, %q", status, answer)
		}
	}
	l.end(t)
}

func TestListen_Large(t *testing.T) {
	l := listen(t, "")
	status, _ := post(t, l.url, strings.Repeat("a", webhook.MaxBody+1), nil)
	if line := l.next(t); status != 400 || !strings.Contains(line, "not verified: body: ") {
		t.Errorf("status %d, %q", status, line)
	}
	resp, err := http.Get(l.url)
	if err != nil {
		t.Fatal(err)
	}
	if line := l.next(t); resp.StatusCode != 400 || !strings.Contains(line, "not verified: method GET") || resp.Body.Close() != nil {
		t.Errorf("status %d, %q", resp.StatusCode, line)
	}
	l.end(t)
}

// Whatever comes, what is printed is harmless.
func TestListen_Harmless(t *testing.T) {
	for _, flags := range [][]string{nil, {"--json"}} {
		l := listen(t, "", append(flags, "--body")...)
		post(t, l.url, `{"Type":"x","SubscribeURL":"`+"\u009b31m"+`"}`+evil, map[string]string{
			"X-Amz-Sns-Message-Type": "\u202eNotification", "X-Amz-Sns-Topic-Arn": "\u009b31m", "Webhook-Id": "\u009b31m", "Errand-Attempt": "\u202e1",
		})
		if line := l.next(t); !isSafe(line) || !strings.Contains(line, "title") {
			t.Errorf("it writes %q", line)
		}
		l.end(t)
	}
}

func TestListen_Delay(t *testing.T) {
	l := listen(t, "", "--delay", "100ms")
	began := time.Now()
	if status, _ := post(t, l.url, "{}", nil); status != 200 || time.Since(began) < 100*time.Millisecond {
		t.Errorf("status %d after %v", status, time.Since(began))
	}
	l.next(t)
	l.end(t)
}

// The end of the receiver is that of its delays.
func TestListen_DelayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		l := &listener{t: newTool(nil, io.Discard, io.Discard), delay: time.Hour, over: ctx}
		w, answered := httptest.NewRecorder(), make(chan time.Time, 1)
		began := time.Now()
		go func() {
			l.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}")))
			answered <- time.Now()
		}()
		time.Sleep(time.Minute)
		end()
		if took := (<-answered).Sub(began); took != time.Minute || w.Code != http.StatusOK {
			t.Errorf("status %d after %v", w.Code, took)
		}
	})
}

// A subscription in the form of Amazon SNS is shown, and confirmed if that is wished.
func TestListen_SNS(t *testing.T) {
	visits := 0
	confirms := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if visits++; r.Method != http.MethodGet || r.URL.Query().Get("Token") != "t1" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer confirms.Close()
	headers := map[string]string{"x-amz-sns-message-type": "SubscriptionConfirmation", "x-amz-sns-topic-arn": "errand:topic:orders"}
	body := func(url string) string { return `{"Type":"SubscriptionConfirmation","SubscribeURL":"` + url + `"}` }
	right := confirms.URL + "/?Token=t1"

	l := listen(t, "")
	post(t, l.url, body(right), headers)
	if line := l.next(t); visits != 0 || !strings.HasSuffix(line, "SubscriptionConfirmation of errand:topic:orders  confirmed by "+right) {
		t.Errorf("%d visits, %q", visits, line)
	}
	l.end(t)

	l = listen(t, "", "--confirm", "--json")
	for _, c := range []struct{ url, want string }{
		{right, "ok"}, {confirms.URL + "/?Token=t2", "status 403"}, {"file:///etc/passwd", "SubscribeURL is no URL of http or https"},
	} {
		post(t, l.url, body(c.url), headers)
		var got received
		if err := json.Unmarshal([]byte(l.next(t)), &got); err != nil || got.Confirmed != c.want || got.SubscribeURL != c.url {
			t.Errorf("%v: %+v, want %q", err, got, c.want)
		}
	}
	post(t, l.url, "text", map[string]string{"x-amz-sns-message-type": "Notification", "x-amz-sns-rawdelivery": "true"})
	if line := l.next(t); !strings.Contains(line, `"sns_type":"Notification","sns_raw":true}`) {
		t.Errorf("it writes %s", line)
	}
	l.end(t)

	// What is not verified is not visited.
	visits = 0
	l = listen(t, webhook.NewSecret().Reveal(), "--confirm", "--secret-file", "-")
	post(t, l.url, body(right), headers)
	if line := l.next(t); visits != 0 || !strings.Contains(line, "not verified") {
		t.Errorf("%d visits, %q", visits, line)
	}
	l.end(t)
}

// What is written of requests is fixed, byte for byte: programs read it.
func TestListen_JSON(t *testing.T) {
	secret, confirms := webhook.NewSecret(), receiver(t)
	l := listen(t, secret.Reveal(), "--secret-file", "-", "--json", "--body", "--confirm")
	body := `{"Type":"SubscriptionConfirmation","Subject":"a<b","SubscribeURL":"` + confirms + `"}`
	full := signedHeaders(t, secret, time.Now(), body)
	for name, value := range map[string]string{
		webhook.HeaderAttempt: "2", webhook.HeaderEndpoint: "ada", "X-Amz-Sns-Message-Type": "SubscriptionConfirmation",
		"X-Amz-Sns-Topic-Arn": "topic", "X-Amz-Sns-Subscription-Arn": "subscription", "X-Amz-Sns-Message-Id": "message",
	} {
		full[name] = value
	}
	for _, c := range []struct {
		body    string
		headers map[string]string
		want    string
	}{
		{body, full, `{"at":"<time>Z","id":"msg_1","attempt":"2","endpoint":"ada","path":"/in","verified":true,"status":200,"bytes":0,` +
			`"sns_type":"SubscriptionConfirmation","sns_topic":"topic","sns_subscription":"subscription","sns_message_id":"message","sns_subject":"a\u003cb",` +
			`"subscribe_url":"http://127.0.0.1:<port>/","confirmed":"ok",` +
			`"body":"{\"Type\":\"SubscriptionConfirmation\",\"Subject\":\"a\u003cb\",\"SubscribeURL\":\"http://127.0.0.1:<port>/\"}"}`},
		{"", map[string]string{"X-Amz-Sns-Message-Type": "Notification", "X-Amz-Sns-Rawdelivery": "true"}, `{"at":"<time>Z","path":"/in","verified":false,` +
			`"why":"headers missing or malformed: no webhook-id","status":400,"bytes":0,"sns_type":"Notification","sns_raw":true,"body":""}`},
	} {
		post(t, l.url+"in", c.body, c.headers)
		if got := constant(l.next(t), new([]string)); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
	l.end(t)
}

func TestListen_BadUsage(t *testing.T) {
	for want, args := range map[string][]string{
		`--status "99": must be between 200 and 599`: {"--status", "200,99"},
		"must not be negative":                       {"--delay", "-1s"},
		"has no secret":                              {"--secret-file", "-"},
		"--addr: ":                                   {"--addr", "nowhere:x"},
		"no such file":                               {"--secret-file", "testdata/none"},
	} {
		if status, out, errs := errand(t, "", append([]string{"webhooks", "listen"}, args...)...); status != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %q %q", args, status, out, errs)
		}
	}
}
