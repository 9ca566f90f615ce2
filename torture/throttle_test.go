//go:build unix

package torture_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["paced"] = paced }

// paced is a program that tells the receiver of each attempt as it starts, over a socket.
func paced(p part, v *voice) error {
	c, err := (&net.Dialer{}).DialContext(context.Background(), "unix", receiver{filepath.Dir(p.DB)}.path("starts"))
	if err != nil {
		return err
	}
	defer c.Close()
	return worksFor(p, v, errand.WorkerOptions{}, func(w *errand.Worker, _ receiver) {
		errand.Handle(w, func(context.Context, *errand.Job[member]) error {
			_, err := fmt.Fprintln(c, p.First)
			return err
		})
	})
}

// starts is the other side: when attempts of which programs have started, by its clock.
type starts struct {
	mu  sync.Mutex
	at  []time.Time
	who []string
}

// serve notes what programs say until the listener is closed.
func (s *starts) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				s.mu.Lock()
				s.at, s.who = append(s.at, time.Now()), append(s.who, lines.Text())
				s.mu.Unlock()
			}
		}()
	}
}

// within counts the starts of each program in a time that begins so long after the first.
func (s *starts) within(after, length time.Duration) (n int, by map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by = map[string]int{}
	for i, at := range s.at {
		if d := at.Sub(s.at[0]); d >= after && d < after+length {
			by[s.who[i]]++
			n++
		}
	}
	return n, by
}

// Two processes share a throttle of 10 a second. In 30 s after the first second the other
// side counts 315 starts at most, and both processes have some of them. A machine that is
// busy loses tokens, so the least is half of the rate.
func TestSharedThrottle(t *testing.T) {
	t.Parallel()
	const rate = 10
	length, most := 3*time.Second, 33
	if full() {
		length, most = 30*time.Second, 315
	}
	least := int(length/time.Second) * rate / 2
	var seen starts
	crew := newCrew(t, 0, "paced", true, func(q *errand.Queue) {
		if err := q.Configure(t.Context(), errand.Lane{Queue: "default"}, errand.Settings{Starts: new(rate)}); err != nil {
			t.Fatal(err)
		}
	})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", crew.r.path("starts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go seen.serve(l)
	crew.all, crew.names = make([]*child, 2), make([]int, 2)
	for i := range crew.all {
		crew.begin(i)
	}
	for _, one := range crew.all {
		one.hears("ready")
	}
	jobs := make([]errand.NewJob, 1000)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: member{N: i}}
	}
	if _, err := crew.q.EnqueueMany(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	await(t, length+time.Minute, "the time is over", func() bool {
		later, _ := seen.within(length+time.Second, time.Hour)
		return later > 0
	})
	n, by := seen.within(time.Second, length)
	t.Logf("%d starts in %v after the first second: %v", n, length, by)
	if n < least || n > most {
		t.Errorf("%d starts: want %d to %d", n, least, most)
	}
	if len(by) != 2 {
		t.Errorf("only one process has started any: %v", by)
	}
	for _, one := range crew.all {
		one.finishSoon(time.Minute)
	}
	if err := crew.q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, crew.path)
}
