package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// payload is what every system carries, as JSON of the same bytes.
type payload struct {
	N   int    `json:"n"`
	At  int64  `json:"at"`  // when the enqueue began, in nanoseconds since 1970
	Pad string `json:"pad"` // what makes up the size
}

// newJob is a job to enqueue.
type newJob struct {
	payload
	Due      time.Time // zero is at once
	Priority int
	Queue    string // empty is the usual one; only errand has others
	Kind     int    // 0 is the usual one; only errand has others, 1 to 50
	Other    bool   // of a kind that nobody handles
	Group    string // only errand has groups
	Unique   string // its unique key; only errand has them
}

// job is one attempt, as the handler of a workload sees it.
type job struct {
	payload
	Attempt int // 1 is the first
	// Raw is the payload of a system that does not decode it.
	Raw []byte
}

// decoded returns the payload also of a system that has left it as it was.
func (j *job) decoded() (p payload, err error) {
	if j.Raw == nil {
		return j.payload, nil
	}
	err = json.Unmarshal(j.Raw, &p)
	return p, err
}

// smallPad makes a payload of some 100 bytes.
var smallPad = strings.Repeat("x", 64)

// padFor returns the padding with which a payload has size bytes of JSON, less
// what its numbers are shorter than the longest.
func padFor(size int) string {
	return strings.Repeat("x", size-len(`{"n":1234567,"at":1234567890123456789,"pad":""}`))
}

// jobs makes n jobs with these marks, the first with number from.
func jobs(from, n int, pad string, marks ...mark) []newJob {
	all := make([]newJob, n)
	for i := range all {
		all[i] = newJob{payload: payload{N: from + i, Pad: pad}}
		for _, mark := range marks {
			mark(&all[i])
		}
	}
	return all
}

// mark sets fields of a job that plain jobs leave empty.
type mark func(j *newJob)

// withKey sets a unique key that no other job has.
func withKey(j *newJob) { j.Unique = fmt.Sprint("order ", j.N) }

// inGroups spreads jobs over so many groups in turn.
func inGroups(n int) mark {
	return func(j *newJob) { j.Group = fmt.Sprint("device ", j.N%n) }
}

// inLanes spreads jobs over these queues and all kinds in turn.
func inLanes(queues []string) mark {
	return func(j *newJob) {
		j.Queue, j.Kind = queues[j.N%len(queues)], 1+j.N/len(queues)%len(kinds)
	}
}

// encoded returns a payload as JSON. A payload cannot fail to encode.
func encoded(j *newJob) []byte {
	b, err := json.Marshal(&j.payload)
	if err != nil {
		panic(err)
	}
	return b
}
