package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/errandq/errand"
)

// Family is a metric with all its samples.
type Family struct {
	Name string `json:"name"`
	Help string `json:"help"`
	// Type is counter, gauge or histogram.
	Type string `json:"type"`
	// Labels are the names of the labels.
	Labels  []string `json:"labels,omitempty"`
	Samples []Sample `json:"samples,omitempty"`
}

// Sample is a number with its labels.
type Sample struct {
	// Labels are the values, in the order of [Family].Labels.
	Labels []string `json:"labels,omitempty"`
	Value  float64  `json:"value"`
	// Histogram takes the place of Value in a histogram. It is nil in others.
	Histogram *errand.Histogram `json:"histogram,omitempty"`
}

// The places of the families in schema.
const (
	famUp = iota
	famClock
	famJobs
	famEnqueued
	famEnded
	famEvicted
	famDeadEvicted
	famAttempts
	famRun
	famWait
	famOldest
	famHolds
	famHeldSince
	famBehindDead
	famWorkers
	famUnserved
	famHealth
	famDiskFull
	famFile
	famLog
	famDevices
	famDeviceSeen
	famDeviceHeld
	famDeviceJobs
	famDeviceBytes
	famStreamSeen
	famStreamHeld
	famKept
	famMissing
)

var laneLabels = []string{"queue", "kind"}

var (
	deviceLabels = []string{"device"}
	streamLabels = []string{"queue", "stream"}
)

func withLane(label string) []string { return append(slices.Clone(laneLabels), label) }

// schema are the families without samples.
var schema = []Family{
	famUp:          {Name: "errand_up", Type: "gauge", Help: "1 if the queue could be read within 2 s. If 0, all else is left out."},
	famClock:       {Name: "errand_clock_seconds", Type: "gauge", Help: "The time of the queue's clock, which due times refer to."},
	famJobs:        {Name: "errand_jobs", Type: "gauge", Labels: withLane("state"), Help: "Jobs in the file by state."},
	famEnqueued:    {Name: "errand_jobs_enqueued_total", Type: "counter", Labels: laneLabels, Help: "Jobs that were enqueued since the file was made, by all processes."},
	famEnded:       {Name: "errand_jobs_ended_total", Type: "counter", Labels: withLane("outcome"), Help: "Jobs that have ended since the file was made, in all processes."},
	famEvicted:     {Name: "errand_evicted_total", Type: "counter", Labels: laneLabels, Help: "Jobs that were deleted to make room, since the file was made."},
	famDeadEvicted: {Name: "errand_dead_evicted_total", Type: "counter", Labels: laneLabels, Help: "Dead letters that were deleted, as there were too many, since the file was made."},
	famAttempts:    {Name: "errand_attempts_total", Type: "counter", Labels: withLane("verdict"), Help: "Attempts that workers of this process have ended."},
	famRun:         {Name: "errand_job_run_seconds", Type: "histogram", Labels: laneLabels, Help: "How long handlers of this process took."},
	famWait:        {Name: "errand_job_wait_seconds", Type: "histogram", Labels: laneLabels, Help: "How long jobs were due before handlers of this process were called."},
	famOldest:      {Name: "errand_oldest_due_timestamp_seconds", Type: "gauge", Labels: withLane("held"), Help: "When the job was due that waits longest, on the queue's clock. Absent if none is due."},
	famHolds:       {Name: "errand_holds", Type: "gauge", Labels: withLane("reason"), Help: "Holds that keep jobs from starting: those of the queue, of the kind and of both. A sum where queues are merged."},
	famHeldSince:   {Name: "errand_held_since_timestamp_seconds", Type: "gauge", Labels: withLane("reason"), Help: "When the oldest of these holds began, on the queue's clock. Absent if there is none."},
	famBehindDead:  {Name: "errand_jobs_behind_dead", Type: "gauge", Labels: []string{"queue"}, Help: "Jobs that wait behind dead jobs of their groups, counted up to 2,000 in a queue. Absent if there are none. A sum where queues are merged. After the first 100 queues only one more counts, as other. If other is 0, not all groups were looked at."},
	famWorkers:     {Name: "errand_workers", Type: "gauge", Help: "Workers that run on the file, in all processes."},
	famUnserved:    {Name: "errand_unserved_lanes", Type: "gauge", Labels: laneLabels, Help: "1 if jobs are due or running and no worker takes such jobs. A sum where queues are merged."},
	famHealth:      {Name: "errand_health", Type: "gauge", Labels: []string{"code"}, Help: "Reasons of Health by code: what somebody should look at. The code dead is for a cap of dead letters that is nearly reached."},
	famDiskFull:    {Name: "errand_disk_full", Type: "gauge", Help: "1 if there is no space left for new jobs."},
	famFile:        {Name: "errand_file_bytes", Type: "gauge", Help: "The size of the file."},
	famLog:         {Name: "errand_log_bytes", Type: "gauge", Help: "The size of the log beside the file."},
	famDevices:     {Name: "errand_relay_devices", Type: "gauge", Labels: []string{"state"}, Help: "Devices whose jobs this server takes, by state: active, held if one of its streams is, full if it may begin no more streams, or revoked."},
	famDeviceSeen:  {Name: "errand_relay_device_last_seen_timestamp_seconds", Type: "gauge", Labels: deviceLabels, Help: "When the last request of a device had an effect, on the queue's clock. Absent if none had; of other devices the latest."},
	famDeviceHeld:  {Name: "errand_relay_device_held_streams", Type: "gauge", Labels: deviceLabels, Help: "Streams of a device that are held until it is accepted."},
	famDeviceJobs:  {Name: "errand_relay_device_jobs_total", Type: "counter", Labels: []string{"device", "outcome"}, Help: "Jobs of a device by what became of them on this server. A job that was told to come later counts each time."},
	famDeviceBytes: {Name: "errand_relay_device_bytes_total", Type: "counter", Labels: deviceLabels, Help: "Bytes of the requests with these jobs, as they were sent."},
	famStreamSeen:  {Name: "errand_relay_stream_last_seen_timestamp_seconds", Type: "gauge", Labels: streamLabels, Help: "When the last answer of the server to a stream of this device was written, on the queue's clock. Absent if there was none."},
	famStreamHeld:  {Name: "errand_relay_stream_held", Type: "gauge", Labels: streamLabels, Help: "1 if the server held the stream when it last answered."},
	famKept:        {Name: "errand_relay_queue_kept", Type: "gauge", Labels: []string{"queue"}, Help: "Jobs whose outcome on the server is known, and that have not ended on this device."},
	famMissing:     {Name: "errand_relay_queue_missing", Type: "gauge", Labels: []string{"queue"}, Help: "How many times the server was found to lack jobs, until they are sent again."},
}

// Families returns all families, without samples.
func Families() []Family { return slices.Clone(schema) }

// down returns the families of a queue that cannot be read.
func down() []Family {
	all := slices.Clone(schema)
	all[famUp].add(0)
	return all
}

func (f *Family) add(value float64, labels ...string) {
	f.Samples = append(f.Samples, Sample{Labels: labels, Value: value})
}

// time adds a histogram, if something was measured.
func (f *Family) time(h *errand.Histogram, lane errand.Lane) {
	if h.Count > 0 {
		f.Samples = append(f.Samples, Sample{Labels: []string{lane.Queue, lane.Kind}, Histogram: h})
	}
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// appendText appends families in the text format, without those that have no samples. Each
// sample has the labels of options too.
func appendText(b []byte, families []Family, constant map[string]string) []byte {
	var more []byte
	for _, name := range slices.Sorted(maps.Keys(constant)) {
		more = appendLabel(append(more, ','), name, constant[name])
	}
	for i := range families {
		f := &families[i]
		if len(f.Samples) == 0 {
			continue
		}
		b = append(b, "# HELP "+f.Name+" "...)
		b = append(b, escapeHelp.Replace(f.Help)...)
		b = append(b, "\n# TYPE "+f.Name+" "+f.Type+"\n"...)
		for j := range f.Samples {
			b = f.Samples[j].append(b, f, more)
		}
	}
	return b
}

// append appends the lines of a sample. More are labels, each after a comma.
func (s *Sample) append(b []byte, f *Family, more []byte) []byte {
	var labels []byte
	for i, name := range f.Labels {
		labels = appendLabel(append(labels, ','), name, s.Labels[i])
	}
	labels = append(labels, more...)
	line := func(suffix string, labels []byte, value float64) {
		b = append(append(b, f.Name...), suffix...)
		if len(labels) > 0 {
			b = append(append(append(b, '{'), labels[1:]...), '}')
		}
		b = append(append(append(b, ' '), number(value)...), '\n')
	}
	if s.Histogram == nil {
		line("", labels, s.Value)
		return b
	}
	upTo := func(bound float64) []byte {
		return appendLabel(append(labels[:len(labels):len(labels)], ','), "le", number(bound))
	}
	for _, bucket := range s.Histogram.Buckets {
		line("_bucket", upTo(bucket.UpTo), float64(bucket.N))
	}
	line("_bucket", upTo(math.Inf(1)), float64(s.Histogram.Count))
	line("_sum", labels, s.Histogram.Sum)
	line("_count", labels, float64(s.Histogram.Count))
	return b
}

func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), `="`...)
	return append(append(b, escapeLabel.Replace(valid(value))...), '"')
}

// valid returns s with what is no UTF-8 replaced, which Prometheus refuses.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
