package badnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/badnet"
)

// server is the good end of a network. It answers each request with its body in capitals.
type server struct {
	mu  sync.Mutex
	got []string // bodies, as far as they came
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	b, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, string(b))
	if err == nil && int64(len(b)) != r.ContentLength {
		err = io.ErrUnexpectedEOF // as a transport has it
	}
	if err != nil {
		return nil, err
	}
	body := strings.ToUpper(string(b))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (s *server) bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// post returns the answer as "status body", and "..." after it if the body ended too soon.
func post(ctx context.Context, n http.RoundTripper, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server.example/", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	a, err := n.RoundTrip(r)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(a.Body)
	_ = a.Body.Close()
	end := ""
	if errors.Is(err, io.ErrUnexpectedEOF) {
		end = "..."
	} else if err != nil {
		return "", err
	}
	if end == "" && int64(len(b)) != a.ContentLength {
		return "", fmt.Errorf("the length is %d, the body %q", a.ContentLength, b)
	}
	if strings.HasPrefix(string(b), "<!DOCTYPE html>") {
		b = []byte("page")
	}
	return strings.TrimSpace(fmt.Sprint(a.StatusCode, " ", string(b), end, " ", a.Header.Get("Retry-After"))), nil
}

// Each fault does to a request what its comment says.
func TestNetwork_faults(t *testing.T) {
	for _, c := range []struct {
		fault   badnet.Fault
		answers []string // one of these; empty: an error
		got     []string // by the server: one of these, with a comma between two
	}{
		{badnet.Portal, []string{"200 page"}, []string{""}},
		{badnet.Redirect, []string{"302 page"}, []string{""}},
		{badnet.TooMany, []string{"429 page 1"}, []string{""}},
		{badnet.BadGateway, []string{"502 page 1"}, []string{"", "hello"}},
		{badnet.LostRequest, nil, []string{""}},
		{badnet.Delayed, []string{"200 HELLO"}, []string{"hello"}},
		{badnet.Reordered, []string{"200 HELLO"}, []string{"hello"}},
		{badnet.Doubled, []string{"200 HELLO"}, []string{"hello,hello"}},
		{badnet.DoubledLate, []string{"200 HELLO"}, []string{"hello,hello"}},
		{badnet.Abandoned, nil, []string{"hello"}},
		{badnet.CutRequest, []string{"", "200", "200 H", "200 HE", "200 HEL", "200 HELL"}, []string{"", "h", "he", "hel", "hell"}},
		{badnet.LostAnswer, nil, []string{"hello"}},
		{badnet.CutAnswer, []string{"200", "200 H", "200 HE", "200 HEL", "200 HELL", "200 ...", "200 H...", "200 HE...", "200 HEL...", "200 HELL..."}, []string{"hello"}},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers, bodies := map[string]bool{}, map[string]bool{}
				for seed := range uint64(100) {
					s := &server{}
					n := badnet.New(s, seed)
					n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{c.fault: 1}})
					answer, err := post(t.Context(), n, "hello")
					time.Sleep(2 * time.Second) // of the bubble: all that was held back has come
					got := strings.Join(s.bodies(), ",")
					n.Close()
					cut := c.fault == badnet.CutRequest && errors.Is(err, io.ErrUnexpectedEOF)
					if c.answers == nil && !errors.Is(err, badnet.ErrLost) || c.answers != nil && (err != nil && !cut || !slices.Contains(c.answers, answer)) {
						t.Fatalf("seed %d: the client got %q, %v", seed, answer, err)
					}
					if !slices.Contains(c.got, got) {
						t.Fatalf("seed %d: the server got %q", seed, got)
					}
					if count := n.Count(c.fault); count != 1 {
						t.Fatalf("seed %d: counted %d times", seed, count)
					}
					answers[answer], bodies[got] = true, true
				}
				// Each thing that may happen has happened.
				if len(answers) != max(1, len(c.answers)) || len(bodies) != len(c.got) {
					t.Errorf("in 100 tries the clients got %v, the server %v", answers, bodies)
				}
			})
		})
	}
}

func TestNetwork_good(t *testing.T) {
	s := &server{}
	n := badnet.New(s, 1)
	defer n.Close()
	for i := range 100 {
		if got, err := post(t.Context(), n, "hello"); got != "200 HELLO" || err != nil {
			t.Fatalf("request %d: %q, %v", i, got, err)
		}
	}
	for f := range badnet.Fault(badnet.Faults) {
		if n.Count(f) != 0 {
			t.Errorf("%v happened %d times", f, n.Count(f))
		}
	}
	if n.Bytes() != 1000 || len(s.bodies()) != 100 {
		t.Errorf("%d bytes in %d requests, want 1000 in 100", n.Bytes(), len(s.bodies()))
	}
}

// Only what is large is too large.
func TestNetwork_tooLarge(t *testing.T) {
	for size, want := range map[int]string{1024: "200", 1025: "413"} {
		n := badnet.New(&server{}, 1)
		n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{badnet.TooLarge: 1}})
		if got, err := post(t.Context(), n, strings.Repeat("x", size)); !strings.HasPrefix(got, want) || err != nil {
			t.Errorf("%d bytes: %.9q, %v", size, got, err)
		}
		n.Close()
	}
}

// The seed alone says what the requests meet; in a storm they meet everything.
func TestNetwork_seed(t *testing.T) {
	run := func(seed uint64) (counts [badnet.Faults]int64, got []string) {
		synctest.Test(t, func(t *testing.T) {
			n := badnet.New(&server{}, seed)
			n.SetWeather(badnet.Storm(0.1))
			for i := range 500 {
				answer, err := post(t.Context(), n, strings.Repeat("x", 10*i))
				got = append(got, fmt.Sprint(len(answer), err))
			}
			time.Sleep(2 * time.Second)
			n.Close()
			for f := range badnet.Fault(badnet.Faults) {
				counts[f] = n.Count(f)
			}
		})
		return counts, got
	}
	counts, got := run(1)
	if again, gotAgain := run(1); counts != again || !slices.Equal(got, gotAgain) {
		t.Errorf("seed 1 again: %v, then %v", counts, again)
	}
	if _, other := run(2); slices.Equal(got, other) {
		t.Error("seed 2 is like seed 1")
	}
	for f := range badnet.Gone {
		if counts[f] < 10 {
			t.Errorf("%v happened %d times in 500 requests", f, counts[f])
		}
	}
}

// A request, or a copy of it, that is held back comes after later ones, however long that takes.
func TestNetwork_reorders(t *testing.T) {
	for _, fault := range []badnet.Fault{badnet.Reordered, badnet.DoubledLate, badnet.Abandoned} {
		t.Run(fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				n := badnet.New(s, 1)
				defer n.Close()
				n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{fault: 1}, MaxDelay: time.Hour})
				first := make(chan struct{})
				go func() { _, _ = post(t.Context(), n, "first"); close(first) }()
				synctest.Wait()
				n.SetWeather(badnet.Weather{})
				began, before := time.Now(), len(s.bodies())
				for _, body := range []string{"a", "b", "c", "d"} {
					if _, err := post(t.Context(), n, body); err != nil {
						t.Fatal(err)
					}
				}
				<-first
				synctest.Wait()
				if got := s.bodies(); got[before] != "a" || len(got) != before+5 || !slices.Contains(got[before:], "first") {
					t.Errorf("the server got %v", got)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("it was held back for %v after the others", waited)
				}
			})
		})
	}
}

// The server gets a request, and answers it, though the client has gone.
func TestNetwork_gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		n := badnet.New(s, 1)
		defer n.Close()
		n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{badnet.Delayed: 1}, MaxDelay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if answer, err := post(ctx, n, "hello"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the client got %q, %v", answer, err)
		}
		if got := s.bodies(); len(got) > 0 || n.Count(badnet.Gone) != 1 {
			t.Errorf("after a second the server got %v, and %d clients have gone", got, n.Count(badnet.Gone))
		}
		time.Sleep(time.Hour)
		if got := s.bodies(); len(got) != 1 {
			t.Errorf("after an hour the server got %v", got)
		}
	})
}

// Requests and answers share a line of so many bytes a second.
func TestNetwork_bandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := badnet.New(&server{}, 1)
		defer n.Close()
		n.SetWeather(badnet.Weather{BytesPerSecond: 100})
		began := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = post(t.Context(), n, strings.Repeat("x", 50)) })
		}
		all.Wait()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("1,000 bytes at 100 a second took %v", took)
		}
	})
}

// What is held back when the network is closed is not sent any more.
func TestNetwork_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		n := badnet.New(s, 1)
		n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{badnet.Abandoned: 1}, MaxDelay: time.Hour})
		_, _ = post(t.Context(), n, "hello")
		began := time.Now()
		n.Close()
		if got := s.bodies(); len(got) > 0 || time.Since(began) > 0 {
			t.Errorf("after %v the server got %v", time.Since(began), got)
		}
	})
}

// A client of the proxy finds its connection cut if its request or answer was lost, and gets what the network
// answers.
func TestNetwork_Proxy(t *testing.T) {
	real := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strings.ToUpper(string(b)))
	}))
	defer real.Close()
	to, err := url.Parse(real.URL)
	if err != nil {
		t.Fatal(err)
	}
	for fault, want := range map[badnet.Fault]string{badnet.Gone: "200 HELLO", badnet.LostRequest: "cut", badnet.LostAnswer: "cut", badnet.TooMany: "429"} {
		n := badnet.New(http.DefaultTransport, 1)
		n.SetWeather(badnet.Weather{Rates: map[badnet.Fault]float64{fault: 1}})
		front := httptest.NewServer(n.Proxy(func() *url.URL { return to }))
		got := "cut"
		if a, err := http.Post(front.URL, "text/plain", strings.NewReader("hello")); err == nil {
			b, _ := io.ReadAll(a.Body)
			_ = a.Body.Close()
			got = fmt.Sprint(a.StatusCode, " ", string(b))
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%v: got %q, want %q", fault, got, want)
		}
		front.Close()
		n.Close()
	}
}
