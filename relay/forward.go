package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/relay/internal/ratchet"
	"github.com/errandq/errand/relay/internal/wire"
	"github.com/errandq/errand/storage"
)

// Options configure [Forward]. Queue, URL, Server, Device, and Key or a Client with a certificate are needed.
type Options struct {
	// Queue is the queue whose jobs go to the server, one of [errand.WorkerOptions].Queues. It is
	// a name, and not a prefix.
	Queue string
	// URL is where the server has its [Handler]. Its scheme is https, but for a loopback address.
	URL string
	// Server is the name of the server, [HandlerOptions].Server there.
	Server string
	// Device is the name by which the server knows this device.
	Device string
	// Key returns the key of the device, a line of [NewKey]. It is called once, and again after
	// the server has refused the key. [KeyFile] returns one. If nil, the device is one of [MutualTLS]: the
	// transport of Client has its certificate, and verifies that of the server, which must be the one that
	// Handler runs in. The scheme of URL is https then, and ServerKey is empty.
	Key func(context.Context) (string, error)
	// ServerKey is the public key of the server, a line of [NewKey]. It is empty if the key of
	// the device is hmac-sha256 or Key is nil, and needed otherwise.
	ServerKey string
	// Streams is how many requests are under way at a time. It is written at the first start, and
	// another number is refused later. If zero, 4; at most 64.
	Streams int
	// Keep is how long the device keeps jobs that the server has taken, so that [Missing] can name
	// them and [Resend] can send them again after the server was put back to an older copy of its file. It is the
	// Retention of the queue, unless one is set, see [errand.Settings]. If zero, seven days; if
	// negative, they are not kept.
	Keep time.Duration
	// Unique says by kind how the unique key of a job is held on the server: Forever, For and
	// OnConflict count. The key of another kind is free when its job has ended there, and until
	// then a second job is a duplicate.
	Unique map[string]errand.Unique
	// Gate says whether the server may be called, such as a [errand.Switch] that follows a modem. The gate
	// of QueueOptions cannot be set. If nil, there is none.
	Gate errand.Gate
	// Client makes the requests. Its CheckRedirect does not count: a redirect could lead to a server without https, so
	// none is followed. A request ends after a minute, and a second for each 4 KiB, at the latest. If nil, one with the
	// transport of [http.DefaultClient], and a connection for each stream.
	Client *http.Client
	// Logger gets what people should know. If nil, slog.Default().
	Logger *slog.Logger

	backoff, patience time.Duration // of tests
}

const (
	defaultStreams, mostStreams = 4, 64
	defaultKeep                 = 7 * 24 * time.Hour
	mostBytes                   = 1 << 20 // of args and headers in a request
)

// KeyFile returns an [Options].Key that reads the key from a file.
func KeyFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		line, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("errand: relay: read key: %w", err)
		}
		return string(line), nil
	}
}

// KeyText returns an [Options].Key that is always the same.
func KeyText(line string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return line, nil }
}

// Forward has a worker pass on all jobs of a queue to a server, each once. It takes the place of
// [errand.HandleQueue], and so of all handlers in that queue. Jobs of a group arrive in their order.
//
// A job that the server takes is done, one that the server refuses is dead, of reason permanent. If the server
// cannot be reached, or has no room, the queue has a closed gate whose reason says why; nothing is
// used up. Policy and timeout of a job are the server's: those that it has here have no effect, but
// a failure of the server about a job alone is a failure of it here. A delay passes here. A job that came from another
// device has its place on the server, and is refused.
//
// Forward returns an [errand.FieldError] for each bad option, an error that is
// [errand.ErrUnsupportedDB] if the file does not sync each commit, and an error if another worker has
// handlers for jobs of the queue. It panics where HandleQueue does.
func Forward(w *errand.Worker, o *Options) error {
	q, err := door.QueueOf[*errand.Queue](w)
	if err != nil {
		return err
	}
	f := &forwarder{queue: q, options: *cmp.Or(o, &Options{})}
	if err := f.validate(); err != nil {
		return err
	}
	if err := f.open(context.Background()); err != nil {
		return err
	}
	var g errand.Gate = f.away
	if own := f.options.Gate; own != nil {
		if g, err = gate.All(own, f.away); err != nil {
			return err
		}
	}
	errand.HandleQueue(w, f.options.Queue, f.pass,
		errand.BatchOptions{Max: wire.MaxJobs, MaxBytes: mostBytes, ByGroup: true, Whole: true},
		errand.HandlerOptions{Gate: g, MaxCrashes: math.MaxInt32})
	return nil
}

// forwarder is what Forward has made.
type forwarder struct {
	queue   *errand.Queue
	options Options
	from    wire.Verifier // of the server; nil: the device's own key
	log     *slog.Logger
	away    *away
	rows    outRows
	streams []*stream

	keys   sync.Mutex
	signer wire.Signer // nil: Key is to be called
	shared wire.Verifier

	first sync.Once // a stream has asked
	// keeping is held by who reads all kept verdicts from the file, and shared by who changes some, in
	// the file and then here.
	keeping sync.RWMutex

	mu    sync.Mutex
	kept  map[errand.ID]keptVerdict
	asks  int // rises when all streams are to ask
	swept time.Time
}

func (f *forwarder) validate() error {
	o := &f.options
	var all faults
	all.add(checkName("server", o.Server))
	all.add(checkName("device", o.Device))
	if all.queue(f.queue, "queue", o.Queue); o.Queue == "" {
		all.field("queue", o.Queue, "must be set")
	}
	unkeyed := o.Key == nil && all.certified(o.Client)
	switch u, err := url.Parse(o.URL); {
	case err != nil || u.Host == "":
		all.field("url", o.URL, "must be an address such as https://example.org/relay")
	case unkeyed && u.Scheme != "https":
		all.field("url", o.URL, "must have the scheme https, since the device has no key")
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		all.field("url", o.URL, "must have the scheme https, unless the address is a loopback one")
	}
	if unkeyed && o.ServerKey != "" {
		all.field("server_key", "...", "must be empty, since the device has no key: the certificate of the server counts")
	} else if o.ServerKey != "" {
		from, err := wire.ParseVerifier(o.ServerKey)
		if err != nil {
			all.key("server_key", err)
		}
		f.from = from
	}
	if o.Streams = cmp.Or(o.Streams, defaultStreams); o.Streams < 1 || o.Streams > mostStreams {
		all.field("streams", o.Streams, fmt.Sprintf("must be between 1 and %d", mostStreams))
	}
	o.Keep = max(cmp.Or(o.Keep, defaultKeep), 0)
	relaxed, err := door.Relaxed(f.queue)
	if all.add(err); relaxed {
		all.field("durability", "Relaxed", "must be Full, since the server forgets what was acknowledged here")
	}
	for kind, u := range o.Unique {
		if u.Key != "" || u.ByArgs || u.OnConflict.Merge != nil {
			all.field("unique["+kind+"]", u.Key, "must have only Forever, For and OnConflict without Merge")
		}
	}
	var client http.Client
	if o.Client != nil {
		client = *o.Client
	} else if own, ok := http.DefaultTransport.(*http.Transport); ok { // which keeps connections for two of the streams
		own = own.Clone()
		own.MaxIdleConnsPerHost = o.Streams
		client.Transport = own
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	f.log = logs.New(cmp.Or(o.Logger, slog.Default())) // a stream waits for no logger
	return all.err()
}

// certified reports whether a client may have a certificate in the place of a key, and adds a fault if it is of
// no use. What a Transport of another type does is not known here, so the answers show it.
func (f *faults) certified(c *http.Client) bool {
	const needed = "must not be nil, unless Client has a certificate of the device"
	if c == nil || c.Transport == nil {
		f.field("key", nil, needed)
		return false
	}
	t, ok := c.Transport.(*http.Transport)
	if !ok || t.DialTLSContext != nil {
		return true
	}
	config := t.TLSClientConfig
	if config == nil || len(config.Certificates) == 0 && config.GetClientCertificate == nil {
		f.field("key", nil, needed)
		return false
	}
	if config.InsecureSkipVerify {
		f.field("client", "InsecureSkipVerify", "must be false, since Key is nil: answers count by the certificate of the server")
	}
	return true
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// open reads the rows of the streams, and writes them at the first start.
func (f *forwarder) open(ctx context.Context) error {
	topics, err := door.Open[errand.NewJob](f.queue)
	if err != nil {
		return err
	}
	f.rows = outRows{topics}
	if err := f.workedToo(ctx); err != nil {
		return err
	}
	o := &f.options
	if err := f.rows.begin(ctx, o); err != nil {
		return err
	}
	if f.kept, err = f.rows.kept(ctx); err != nil {
		return err
	}
	if err := f.keep(ctx); err != nil {
		return err
	}
	f.away = newAway(cmp.Or(o.backoff, firstBackoff), f.probe)
	for i := range o.Streams {
		s := &stream{of: f, index: i, most: wire.MaxJobs, room: firstBytes, work: make(chan struct{}, 1), hurries: make(chan struct{}, 1)}
		row, err := f.rows.read(ctx, o.Queue, i)
		if err != nil {
			return err
		}
		if s.row.Held = row.Held; row.Held { // it asks before any stream sends
			_ = f.away.shut(s.whyHeld(), cmp.Or(o.backoff, firstBackoff))
		}
		f.streams = append(f.streams, s)
	}
	return nil
}

// workedToo refuses a queue for which another worker has handlers.
func (f *forwarder) workedToo(ctx context.Context) error {
	workers, err := f.queue.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if slices.Contains(w.Queues, f.options.Queue) && !slices.Contains(w.AllKinds, f.options.Queue) && len(w.Kinds) > 0 {
			return &errand.FieldError{Field: "queue", Value: f.options.Queue, Limit: fmt.Sprintf("must have no other worker, but %s works for it too", w.Instance)}
		}
	}
	return nil
}

// keep sets how long done jobs are kept, unless somebody has said.
func (f *forwarder) keep(ctx context.Context) error {
	lane, s, err := f.settings(ctx)
	if err != nil || s.Retention != nil {
		return err
	}
	keep := f.options.Keep
	if keep == 0 {
		keep = -1
	}
	s.Retention = &keep
	return f.queue.Configure(ctx, lane, s)
}

// passesDead reports whether a dead job of a group lets those behind it pass. If that cannot be read, it does not.
func (f *forwarder) passesDead(ctx context.Context) bool {
	_, s, err := f.settings(ctx)
	return err == nil && s.DeadHead != nil && *s.DeadHead == errand.PassDead
}

// settings returns what is set for the queue.
func (f *forwarder) settings(ctx context.Context) (lane errand.Lane, s errand.Settings, err error) {
	lane = errand.Lane{Queue: f.options.Queue}
	all, err := f.queue.Settings(ctx)
	for _, l := range all {
		if l.Lane == lane {
			s = l.Settings
		}
	}
	return lane, s, err
}

// call is one call of the handler.
type call struct {
	mu   sync.Mutex
	errs errand.BatchError
	left int
	done chan struct{}
	// stopped: the worker stops, and the call is to end soon.
	stopped atomic.Bool
}

// parcel is a job on its way.
type parcel struct {
	*errand.Job[errand.RawArgs]
	job     wire.Job // what is left of its windows is reckoned when it is sent, see window
	startBy time.Time
	call    *call
	bytes   int
}

// end ends the way of a job, with what the handler returns for it.
func (p *parcel) end(err error) {
	c := p.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs[p.ID] = err
	}
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// pass is the handler. It returns when the way of each job has ended, also if the time of a job is
// over before: that is the server's.
func (f *forwarder) pass(ctx context.Context, jobs []*errand.Job[errand.RawArgs]) error {
	infos, err := f.infos(ctx, jobs)
	if err != nil {
		_ = f.away.shut("the jobs could not be read: "+err.Error(), 0)
		return untouched(jobs)
	}
	c := &call{errs: errand.BatchError{}, left: len(jobs), done: make(chan struct{})}
	parts := make([][]*parcel, len(f.streams))
	behind := map[string]bool{} // groups of which a job is not done
	for _, job := range jobs {
		p := &parcel{Job: job, call: c, bytes: len(job.Args.JSON) + 256}
		info, live := infos[job.ID]
		err := f.pack(p, info)
		if !live { // its lease is lost, and the job has ended
			err = door.ErrUntouched
		}
		if behind[job.Group] {
			err = door.ErrUntouched
		}
		if err != nil {
			p.end(err)
			behind[job.Group] = job.Group != ""
			continue
		}
		i := f.streamOf(job)
		parts[i] = append(parts[i], p)
	}
	for i, part := range parts {
		if len(part) > 0 {
			f.streams[i].add(part)
		}
	}
	for stops, ended := door.Stopping(ctx), ctx.Done(); ; {
		select {
		case <-c.done:
			return c.errs
		case <-stops:
			stops = nil
			f.hurry()
		case <-ended:
			if ended = nil; errors.Is(context.Cause(ctx), errand.ErrShutdown) {
				f.interrupt(c)
			} else { // all leases are lost
				f.hurry()
			}
		}
	}
}

func untouched(jobs []*errand.Job[errand.RawArgs]) error {
	errs := errand.BatchError{}
	for _, job := range jobs {
		errs[job.ID] = door.ErrUntouched
	}
	return errs
}

// streamOf returns the stream of a job: that of its group, or of itself if it has none.
func (f *forwarder) streamOf(job *errand.Job[errand.RawArgs]) int {
	h := fnv.New64a()
	if job.Group != "" {
		h.Write([]byte(job.Group))
	} else {
		h.Write(job.ID[:])
	}
	// The low bits of FNV alone are not even over short keys.
	return int((h.Sum64() ^ h.Sum64()>>32) % uint64(len(f.streams)))
}

// infos returns what a handler is not told of its jobs.
func (f *forwarder) infos(ctx context.Context, jobs []*errand.Job[errand.RawArgs]) (map[errand.ID]errand.JobInfo, error) {
	ids := make([]errand.ID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	infos, err := door.Live[errand.JobInfo](ctx, f.queue, ids)
	if err != nil {
		return nil, err
	}
	all := make(map[errand.ID]errand.JobInfo, len(ids))
	for _, info := range infos {
		all[info.ID] = info
	}
	return all, nil
}

// pack makes what travels of a job, or returns how the job ends here.
func (f *forwarder) pack(p *parcel, info errand.JobInfo) error {
	if from := p.Origin; from != (errand.Origin{}) {
		return errand.Permanent(fmt.Errorf("errand: relay: the job came from %s already, and is not passed on again", from.Device))
	}
	j := wire.Job{
		ID: wire.ID(p.ID), Kind: p.Kind, Args: p.Args.JSON, Priority: p.Priority, Tags: info.Tags, Group: p.Group,
		Made: p.CreatedAt.UTC(), OnExpire: string(info.OnExpire),
	}
	for name, value := range p.Headers {
		if !strings.HasPrefix(name, "errand.") && name != MadeHeader {
			if j.Headers == nil {
				j.Headers = make(map[string]string, len(p.Headers))
			}
			j.Headers[name] = value
		}
	}
	if info.Unique != "" {
		u := f.options.Unique[p.Kind]
		j.Unique = &wire.Unique{
			Key: info.Unique, Forever: u.Forever, For: seconds.Duration(u.For), OnConflict: conflicts[u.OnConflict.Mode],
			Quiet: seconds.Duration(u.OnConflict.Quiet), MaxWait: seconds.Duration(u.OnConflict.MaxWait), Fresh: u.OnConflict.Fresh,
		}
	}
	if err := j.Check(); err != nil {
		return errand.Permanent(err)
	}
	p.job, p.startBy = j, info.StartBy
	return nil
}

// window notes what is left of the windows of a job that is about to be sent, or returns how the job ends here if that
// is too little.
func (p *parcel) window(now time.Time) error {
	if !p.startBy.IsZero() {
		left := p.startBy.Sub(now)
		if left < time.Second && p.job.OnExpire == string(errand.Dead) {
			return errand.Permanent(errors.New("errand: relay: not started in time"))
		}
		if left < time.Second {
			return errand.Cancel(errors.New("errand: relay: not started in time"))
		}
		p.job.StartWithin = seconds.Duration(left)
	}
	if !p.Deadline.IsZero() {
		left := p.Deadline.Sub(now)
		if left < time.Second {
			return errand.Permanent(errors.New("errand: relay: not finished in time"))
		}
		p.job.FinishWithin = seconds.Duration(left)
	}
	return nil
}

// interrupt ends the way of the jobs of a call, as the worker stops.
func (f *forwarder) interrupt(c *call) {
	for _, s := range f.streams {
		s.interrupt(c)
	}
}

// hurry has no stream wait for the gate any more.
func (f *forwarder) hurry() {
	for _, s := range f.streams {
		s.hurry()
	}
}

// sign returns the signer of the device, and who verifies answers.
func (f *forwarder) sign(ctx context.Context) (wire.Signer, wire.Verifier, error) {
	if f.options.Key == nil {
		return wire.Unkeyed, wire.Unkeyed, nil
	}
	f.keys.Lock()
	defer f.keys.Unlock()
	if f.signer != nil {
		return f.signer, cmp.Or(f.from, f.shared), nil
	}
	line, err := f.options.Key(ctx)
	if err != nil {
		return nil, nil, err
	}
	signer, err := wire.ParseSigner(line)
	if err != nil {
		return nil, nil, err
	}
	if own, ok := signer.(wire.Verifier); ok {
		f.shared = own
	}
	if f.from == nil && f.shared == nil {
		return nil, nil, &errand.FieldError{Field: "server_key", Value: "", Limit: "must be set if the key of the device is not hmac-sha256"}
	}
	f.signer = signer
	return signer, cmp.Or(f.from, f.shared), nil
}

// forgetKey has the key be asked for again.
func (f *forwarder) forgetKey() {
	f.keys.Lock()
	defer f.keys.Unlock()
	f.signer, f.shared = nil, nil
}

// askEach has each stream ask that has not. A stream without jobs does not by itself, and would not
// learn that the server was put back.
func (f *forwarder) askEach() {
	for _, s := range f.streams {
		s.askIfDue()
	}
}

// askAll has all streams ask before they send again.
func (f *forwarder) askAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks++
}

func (f *forwarder) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asks
}

// newID returns a random ID.
func newID() (id ratchet.ID) {
	rand.Read(id[:])
	return id
}

// sentName is the name of the entry of what a send has brought.
func sentName(stream ratchet.ID, n uint64) string { return fmt.Sprintf("%x/%020d", stream[:], n) }

// idBytes and idsOf are lists of IDs as an entry has them.
func idBytes(ids []storage.ID) (b []byte) {
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func idsOf(b []byte) (ids []storage.ID) {
	for len(b) >= len(storage.ID{}) {
		ids, b = append(ids, storage.ID(b[:16])), b[16:]
	}
	return ids
}
