package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// outcome is what has come of an action.
type outcome struct {
	Title string // of the deed
	Told  string // what was done
	None  bool   // nothing was done, as far as is known
	Case  string // why it was not done, or not in full; empty: it was
	// Remedy is what to do about Case.
	Remedy    string
	At        string // where it is to be seen, from the front
	From      string // where it was asked for, from the front
	n         int64
	job, bulk errand.ID
}

// BackTo returns the title of the page on which it was asked for, empty if that is the page which shows it,
// or of a job, which may be gone.
func (o *outcome) BackTo() string {
	name, _, _ := strings.Cut(o.From, "?")
	if p := pages[name]; p != nil && o.From != o.At {
		return p.title
	}
	return ""
}

// doneName is the parameter of an address, of any page, that has the key of the question whose outcome
// is shown at the top of the page.
const doneName = "done"

// page returns the address of the page on which the outcome is to be seen, from the front.
func (o *outcome) page(key string) string {
	at, q, _ := strings.Cut(o.At, "?")
	if q != "" {
		q += "&"
	}
	return cmp.Or(at, "./") + "?" + q + doneName + "=" + url.QueryEscape(key)
}

const (
	// questionsFor is how long a question can be answered, and how long its outcome is kept.
	questionsFor = 10 * time.Minute
	// mostQuestions is how many questions and outcomes are kept. If there are too many, the
	// oldest of whoever has most of them goes.
	mostQuestions = 1000
)

// ledger keeps the questions that were asked and their outcomes: each question is answered once.
type ledger struct {
	mu  sync.Mutex
	all map[string]*question // by key
}

// question is a question that was asked with a form.
type question struct {
	by     string   // who was asked
	form   [32]byte // what it was about
	answer [32]byte // what came back, once it is taken
	at     time.Time
	// taken is made when the answer comes, and closed when out is set. If out is nil then, it
	// was asked anew and nothing was done.
	taken chan struct{}
	out   *outcome
	ended bool
}

// ask keeps a question and returns its key.
func (l *ledger) ask(by string, form [32]byte, now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*question{}
	}
	has, oldest := map[string]int{}, map[string]string{} // by who was asked
	for key, q := range l.all {
		switch {
		case q.taken != nil && !q.ended: // it is being done
		case now.Sub(q.at) >= questionsFor:
			delete(l.all, key)
		default:
			if has[q.by]++; has[q.by] == 1 || q.at.Before(l.all[oldest[q.by]].at) {
				oldest[q.by] = key
			}
		}
	}
	if len(l.all) >= mostQuestions {
		most := ""
		for _, who := range sortedKeys(has) {
			if has[who] > has[most] {
				most = who
			}
		}
		delete(l.all, oldest[most])
	}
	key := rand.Text()
	l.all[key] = &question{by: by, form: form, at: now}
	return key
}

// get returns a question that is not over; l is locked.
func (l *ledger) get(key, by string, now time.Time) *question {
	q := l.all[key]
	if q == nil || q.by != by || now.Sub(q.at) >= questionsFor && (q.taken == nil || q.ended) {
		return nil
	}
	return q
}

// take takes the answer to a question: it returns true for the first, who has to call end. For those
// that send the same again it waits for that. It returns nil if there is no such question, or another
// answer came before.
func (l *ledger) take(ctx context.Context, key, by string, form, answer [32]byte, now time.Time) (q *question, first bool, err error) {
	l.mu.Lock()
	q = l.get(key, by, now)
	if q == nil || q.form != form || q.taken != nil && q.answer != answer {
		l.mu.Unlock()
		return nil, false, nil
	}
	if first = q.taken == nil; first {
		q.taken, q.answer = make(chan struct{}), answer
	}
	l.mu.Unlock()
	if first {
		return q, true, nil
	}
	select {
	case <-q.taken:
		return q, false, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// end keeps the outcome of a question, nil if nothing was done.
func (l *ledger) end(q *question, out *outcome, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.out, q.at, q.ended = out, now, true
	close(q.taken)
}

// outcome returns what has come of a question, nil if it is not kept, or not for who asks.
func (l *ledger) outcome(key, by string, now time.Time) *outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.get(key, by, now); q != nil && q.ended {
		return q.out
	}
	return nil
}

// takeDone takes the key of an outcome out of the address: the page below the outcome is the same with and
// without it, and so are its links.
func (x *request) takeDone() {
	q, err := url.ParseQuery(x.URL.RawQuery)
	if err != nil || !q.Has(doneName) || x.Method == http.MethodPost {
		return
	}
	x.done = q.Get(doneName)
	q.Del(doneName)
	at := *x.URL
	at.RawQuery = q.Encode()
	r := *x.Request
	r.URL, x.Request = &at, &r
}
