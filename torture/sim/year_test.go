//go:build !race

// The race detector would take minutes for this, and finds in shorter tests what
// there is to find.

package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

// yearDays are enough for all that a year has. A whole one takes ten minutes.
var yearDays = flag.Int("days", 33, "how long TestYear_FieldDevice lasts, in days; 365 is a year")

const (
	yearSeeds    = 2
	moreSeeds    = 4 // with ERRAND_TORTURE=1
	readingsADay = 200

	// What a dark day may cost a lane without a gate. Of what is written a sixth is for
	// the new jobs, and for each attempt there are 11 pages in two commits.
	mostAttempts = 350
	mostWritten  = 20 << 20
	// Without a gate a worker learns of light by its next attempt, at the latest after
	// mostWait. drainIn later, counted from the first success, all is sent that waited.
	mostWait = 5*time.Minute + 30*time.Second
	drainIn  = 2 * time.Minute
	// rebooted is what a reboot may write.
	rebooted = 1 << 20
	// checkpointed is what may be written when the log of the days before is copied.
	checkpointed = 4 << 20

	day = 24 * time.Hour
)

// reading is what the device uploads.
type reading struct{ N int }

func (reading) Kind() string { return "reading" }

// seasons are the days of a device's life.
type seasons struct {
	days int
	dark func(day int) bool // no network at all
}

// ordinary is a year as devices in the field have it: each month has a dark week.
var ordinary = seasons{dark: func(day int) bool { return day%30 >= 23 }}

// A year of a field device: it is online for three hours a night, if the week is not
// a dark one. Once a week a captive portal answers first. After a dark week its token
// has expired. It is rebooted once a week, by a power cut or in order, and its clock
// shows 1970 until it is online. Of all that it measures nothing is lost but what the
// server refuses for good; the first attempts are in order; dark days are cheap; and
// soon after light all is sent.
//
//errand:shows a year of a field device | | no job dies that was not refused for good, first attempts are in order, a dark day costs at most 350 attempts, and behind a gate none; all is sent within 2 minutes of the first success; the default policy outlives a month offline
func TestYear_FieldDevice(t *testing.T) {
	s := ordinary
	s.days = *yearDays
	for _, seed := range yearsOf() {
		t.Run(fmt.Sprintf("open/%d", seed), func(t *testing.T) { s.run(t, &device{seed: seed}) })
		t.Run(fmt.Sprintf("gate/%d", seed), func(t *testing.T) {
			plain := enqueuesOnly(t)
			s.run(t, &device{seed: seed, gate: new(errand.Switch), plain: plain})
		})
	}
}

// enqueuesOnly returns how many bytes are written on a day on which jobs are
// enqueued, and nobody works.
func enqueuesOnly(t *testing.T) int64 {
	d := &device{seed: 1, idle: true}
	seasons{days: 4, dark: func(int) bool { return true }}.run(t, d)
	return d.wrote / 4
}

// The default policy outlives a month without a network, though its retries end after
// 13 hours.
//
//errand:shows a year of a field device
func TestYear_MonthOffline(t *testing.T) {
	if total := policy.Default().Total(); total > day {
		t.Fatalf("the retries of the default policy last for %v: the test shows nothing", total)
	}
	month := seasons{days: 32, dark: func(day int) bool { return day < 30 }}
	month.run(t, &device{seed: 1})
}

func yearsOf() (seeds []uint64) {
	if *oneSeed != 0 {
		return []uint64{*oneSeed}
	}
	n := uint64(yearSeeds)
	if os.Getenv(tortureEnv) == "1" {
		n = moreSeeds
	}
	for seed := uint64(1); seed <= n; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

// device is a field device with its server, and what is known of both.
type device struct {
	t     *testing.T
	seed  uint64
	dice  *rand.Rand
	dir   string
	wall  wall
	gate  *errand.Switch // nil: none
	idle  bool           // has no worker
	plain int64          // what a dark day writes without one
	began time.Time
	day   int
	n     int // readings

	path  string
	life  int // changes with each reboot
	queue *errand.Queue
	stop  func()

	mu       sync.Mutex
	link     link
	lit      time.Time // since when the server can be reached, if it can
	served   bool      // it has since taken a reading
	waited   int       // how many readings there were then
	first    []time.Time
	over     []bool // sent, or refused for good
	refused  int
	attempts int
	wrote    int64 // on dark days
	nights   int64 // dark days
	renewals int
}

// link is the network of the device and its account.
type link struct {
	carrier, portal, expired bool

	dark int // how the device is dark
}

func (l link) light() bool { return l.carrier && !l.portal && !l.expired }

func (s seasons) run(t *testing.T, d *device) {
	t.Helper()
	empty()                                            // outside of the bubble
	dir, err := os.MkdirTemp(tmpfs(t), "errand-year-") //nolint:usetesting // not on a disk, if that can be had
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		d.t, d.dice, d.dir, d.began = t, rand.New(rand.NewPCG(d.seed, 0)), dir, time.Now()
		if d.gate != nil {
			d.gate.Close("no carrier")
		}
		d.link.dark = d.dice.IntN(len(darknesses))
		d.path = filepath.Join(dir, "jobs-0.db")
		if err := os.WriteFile(d.path, empty(), 0o600); err != nil {
			t.Fatal(err)
		}
		d.boot()
		defer func() { d.halt() }()
		for ; d.day < s.days && !t.Failed(); d.day++ {
			d.live(s)
		}
		if !d.idle {
			d.end()
		}
	})
	t.Logf("%d days in %v", s.days, time.Since(began).Round(time.Millisecond))
}

// event is something that happens to the device at a time of the day.
type event struct {
	at time.Duration
	do func()
}

// live lets a day pass.
func (d *device) live(s seasons) {
	var events []event
	add := func(at time.Duration, do func()) { events = append(events, event{at, do}) }
	for range readingsADay {
		add(time.Duration(d.dice.Int64N(int64(day))), d.measure)
	}
	dark := s.dark(d.day)
	if !dark {
		on, off := 2*time.Hour+d.within(30*time.Minute), 5*time.Hour+d.within(30*time.Minute)
		fix := on // of the clock, by the network
		if d.day%7 == 2 {
			add(on, func() { d.change(func(l *link) { l.portal = true }) })
			fix += 20*time.Minute + d.within(time.Hour)
			add(fix, func() { d.change(func(l *link) { l.portal = false }) })
		}
		add(on, func() { d.change(func(l *link) { l.carrier = true }) })
		add(fix+5*time.Second, func() { d.wall.off.Store(0) })
		add(off, func() {
			d.drained()
			how := d.dice.IntN(len(darknesses))
			d.change(func(l *link) { l.carrier, l.dark = false, how })
		})
	} else if d.day > 0 && !s.dark(d.day-1) {
		d.change(func(l *link) { l.expired = true })
	}
	if d.day%7 == 5 {
		add(time.Duration(d.dice.Int64N(int64(day-time.Hour))), d.reboot)
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })

	midnight := d.began.Add(time.Duration(d.day) * day)
	before, wrote := d.renewals, written(d.t)
	d.mu.Lock()
	today := -d.attempts
	d.mu.Unlock()
	for _, e := range events {
		time.Sleep(time.Until(midnight.Add(e.at)))
		e.do()
		synctest.Wait()
	}
	time.Sleep(time.Until(midnight.Add(day)))
	synctest.Wait()
	d.audit(dark, before, today, written(d.t)-wrote)
}

func (d *device) within(t time.Duration) time.Duration { return time.Duration(d.dice.Int64N(int64(t))) }

// measure enqueues a reading.
func (d *device) measure() {
	d.mu.Lock()
	d.first, d.over = append(d.first, time.Time{}), append(d.over, false)
	d.mu.Unlock()
	if _, err := d.queue.Enqueue(context.Background(), reading{N: d.n}, nil); err != nil {
		d.t.Fatal(err)
	}
	d.n++
}

// change changes the network, which the modem tells of.
func (d *device) change(f func(*link)) {
	d.mu.Lock()
	was := d.link
	f(&d.link)
	now, told := d.link, d.gate != nil && !was.carrier
	if now.light() && !was.light() {
		d.lit, d.served, d.waited = time.Now(), false, d.n
		life, attempts, in := d.life, d.attempts, mostWait
		if told {
			in = 0
		}
		time.AfterFunc(in+time.Second, func() { d.seen(life, attempts) })
	}
	d.mu.Unlock()
	switch {
	case d.gate == nil:
	case now.carrier:
		d.gate.Open()
	default:
		d.gate.Close("no carrier")
	}
}

// seen checks that there was an attempt since light, if that has lasted.
func (d *device) seen(life, attempts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link.light() && d.life == life && d.waited > 0 && d.attempts == attempts {
		d.t.Errorf("day %d: no attempt within %v after light", d.day, time.Since(d.lit))
	}
}

// sent checks that all that waited at light is over, if that has lasted.
func (d *device) sent(life int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.link.light() || d.life != life {
		return
	}
	n := 0
	for _, over := range d.over[:d.waited] {
		if !over {
			n++
		}
	}
	if n > 0 {
		d.t.Errorf("day %d: %d of %d readings still wait %v after light", d.day, n, d.waited, time.Since(d.lit))
	}
}

// drained checks that nothing waits at the end of a night.
func (d *device) drained() {
	counts, err := d.queue.Counts(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range counts {
		if c.State != errand.Dead && c.N > 3 { // just measured, or just failed
			d.t.Errorf("day %d: %d jobs are %s after %v of light", d.day, c.N, c.State, time.Since(d.lit))
		}
	}
}

// audit checks a day that is over.
func (d *device) audit(dark bool, renewals, today int, wrote int64) {
	counts, err := d.queue.Counts(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dead := 0
	for _, c := range counts {
		if c.State == errand.Dead {
			dead += int(c.N)
		}
	}
	if dead != d.refused {
		d.t.Errorf("day %d: %d jobs are dead, and the server has refused %d for good", d.day, dead, d.refused)
	}
	for i := 1; i < len(d.first); i++ {
		if a, b := d.first[i-1], d.first[i]; !b.IsZero() && (a.IsZero() || b.Before(a)) {
			d.t.Errorf("day %d: the first attempt of job %d was at %v, that of the one before it at %v", d.day, i, b.Sub(d.began), a.Sub(d.began))
			break
		}
	}
	if dark {
		d.wrote += wrote
		d.nights++
	}
	today += d.attempts
	d.t.Logf("day %d: dark %t, %d attempts, %d KiB, %d renewals", d.day, dark, today, wrote>>10, d.renewals-renewals)
	switch {
	case !dark:
	case d.gate != nil && today > 0:
		d.t.Errorf("day %d: %d attempts behind a closed gate", d.day, today)
	case d.gate != nil && d.wrote > d.nights*(d.plain+d.plain/8+rebooted)+checkpointed:
		d.t.Errorf("day %d: %d KiB were written in %d days behind a closed gate, and the jobs need %d a day", d.day, d.wrote>>10, d.nights, d.plain>>10)
	case today > mostAttempts:
		d.t.Errorf("day %d was dark, and had %d attempts: want at most %d", d.day, today, mostAttempts)
	case wrote > mostWritten:
		d.t.Errorf("day %d was dark, and %d KiB were written: want at most %d", d.day, wrote>>10, mostWritten>>10)
	}
}

// end leaves the device online, until all is over.
func (d *device) end() {
	d.change(func(l *link) { *l = link{carrier: true} })
	time.Sleep(day)
	synctest.Wait()
	counts, err := d.queue.Counts(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range counts {
		if c.State != errand.Dead || c.N != int64(d.refused) {
			d.t.Errorf("in the end %d jobs are %s, want only the %d dead that the server has refused", c.N, c.State, d.refused)
		}
	}
	for i, over := range d.over {
		if !over {
			d.t.Fatalf("reading %d was never sent", i)
		}
	}
	page, err := d.queue.DeadLetters().List(context.Background(), errand.JobFilter{All: true}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, j := range page.Jobs {
		if j.Reason != "permanent" {
			d.t.Errorf("a job is dead: %s, %s", j.Reason, j.Error)
		}
	}
}

// boot starts the program.
func (d *device) boot() {
	store, err := sqlite.Open(d.path, &sqlite.Options{SingleProcess: true, Ballast: -1, Logger: quiet})
	if err != nil {
		d.t.Fatal(err)
	}
	o := &errand.Options{Clock: d.wall.now, Logger: quiet, Retention: -1}
	if d.gate != nil {
		o.Queues = map[string]errand.QueueOptions{"default": {Gate: d.gate}}
	}
	if d.queue, err = errand.New(context.Background(), store, o); err != nil {
		d.t.Fatal(err)
	}
	d.stop = func() {}
	if d.idle {
		return
	}
	w := errand.NewWorker(d.queue, nil)
	life := d.life
	errand.Handle(w, func(ctx context.Context, job *errand.Job[reading]) error { return d.upload(ctx, life, job) },
		errand.HandlerOptions{OnUnauthorized: d.renew})
	jitter := rand.New(rand.NewPCG(d.seed, uint64(life)+1))
	ctx, cancel := context.WithCancel(engine.WithRand(context.Background(), jitter.Float64))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	d.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
	}
}

// halt stops the program.
func (d *device) halt() {
	d.stop()
	if err := d.queue.Close(); err != nil {
		d.t.Error(err)
	}
}

// reboot is a power cut or a reboot in order. The clock begins with 1970.
func (d *device) reboot() {
	synctest.Wait()
	d.mu.Lock()
	d.life++
	d.mu.Unlock()
	if d.dice.IntN(2) == 0 {
		was := d.path
		d.path = filepath.Join(d.dir, fmt.Sprintf("jobs-%d.db", d.life))
		for _, part := range []string{"", "-wal"} {
			b, err := os.ReadFile(was + part)
			if err == nil {
				err = os.WriteFile(d.path+part, b, 0o600)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				d.t.Fatal(err)
			}
		}
		defer func() {
			left, _ := filepath.Glob(was + "*")
			for _, name := range left {
				_ = os.Remove(name)
			}
		}()
	}
	d.halt()
	time.Sleep(time.Minute + d.within(20*time.Minute))
	d.wall.off.Store(int64(-time.Since(time.Unix(0, 0)) - right))
	d.boot()
}

// upload is the handler.
func (d *device) upload(ctx context.Context, life int, job *errand.Job[reading]) error {
	d.mu.Lock()
	l, n := d.link, job.Args.N
	d.attempts++
	if job.Attempt == 1 && d.first[n].IsZero() {
		d.first[n] = time.Now()
	}
	d.mu.Unlock()
	took, err := l.post(n, job.Attempt)
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if life != d.life {
		return err // the machine is down
	}
	switch e, _ := errors.AsType[*policy.StatusError](err); {
	case err == nil:
		d.over[n] = true
		if !d.served {
			d.served = true
			time.AfterFunc(drainIn, func() { d.sent(life) })
		}
	case e == nil:
	case e.Status == 400:
		d.over[n] = true
		d.refused++
	}
	return err
}

// renew gets a new token, if there is a network.
func (d *device) renew(ctx context.Context) error {
	d.mu.Lock()
	d.renewals++
	l := d.link
	d.mu.Unlock()
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if !l.carrier || l.portal {
		return darknesses[l.dark]
	}
	d.change(func(l *link) { l.expired = false })
	return nil
}

// darknesses are what a client is told when there is no network.
var darknesses = []error{
	&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)},
	&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
	&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "api.example.org", IsTimeout: true, IsTemporary: true}},
	&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.example.org", IsNotFound: true}},
}

// post returns what becomes of a request, and after which time.
func (l link) post(n, attempt int) (time.Duration, error) {
	const rtt = 100 * time.Millisecond
	roll := dice(1, "post", int64(n), int64(attempt)) % 1000
	switch {
	case !l.carrier:
		return 10 * time.Millisecond, &url.Error{Op: "Post", URL: "https://api.example.org/readings", Err: darknesses[l.dark]}
	case l.portal:
		return rtt, &policy.StatusError{Status: 302, Method: "POST", URL: "https://api.example.org/readings"}
	case l.expired:
		return rtt, &policy.StatusError{Status: 401, Text: "token expired"}
	case n%97 == 50:
		return rtt, &policy.StatusError{Status: 400, Text: "no such sensor"}
	case roll < 20:
		return rtt, &policy.StatusError{Status: 503, After: 10 * time.Second}
	case roll < 40:
		return 3 * time.Second, &url.Error{Op: "Post", URL: "https://api.example.org/readings", Err: context.DeadlineExceeded}
	}
	return rtt, nil
}

// written returns how many bytes the process has written, zero if the system does not
// say.
func written(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("wchar: "))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
