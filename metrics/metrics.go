// Package metrics writes the numbers of a queue in the text format of Prometheus, version 0.0.4.
// docs/metrics.md says what to watch. The folder has alerts.yml, rules for Prometheus, and
// dashboard.json, a dashboard for Grafana. Package metrics/prom, a module of its own, is for
// programs that have a registry of client_golang.
//
// Labels are queue, kind, device, the number of a stream, and words of a fixed list. IDs, groups and
// error texts are never labels. Names of queues, kinds and devices are in the text: serve it only to those who may know them.
// The first 200 devices of package relay that were added are told apart, and the first 50 relayed queues
// by name. Other devices are summed, with the label device="other".
package metrics

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/errandq/errand"
)

// Options configure what is written. Nil and the zero value mean defaults.
type Options struct {
	// Lanes is how many pairs of a queue and a kind are told apart, at most 10,000: the first
	// ones, in the order in which the file has met them, see [errand.LaneTotals].Number. The
	// others are summed, with the labels queue="other" and kind="other". A pair has up to 70
	// series. If zero, 200.
	Lanes int
	// Merge are prefixes of queues, such as "webhook/*". All queues of a prefix have one series
	// for each kind, whose label queue is the prefix. The longest prefix counts. If nil, each
	// queue has its own.
	Merge []string
	// Labels are added to each number. They tell several queues of one process apart, or
	// several files of one device. If nil, none are added.
	Labels map[string]string
	// File is the path of the queue's file. Its size and that of its log are told. If empty,
	// they are left out.
	File string
}

const (
	defaultLanes = 200
	mostLanes    = 10_000
	contentType  = "text/plain; version=0.0.4; charset=utf-8"
)

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// validate returns a [errand.FieldError] for the first fault.
func (o *Options) validate() error {
	if o.Lanes < 0 || o.Lanes > mostLanes {
		return &errand.FieldError{Field: "lanes", Value: o.Lanes, Limit: fmt.Sprintf("must be between 0 and %d", mostLanes)}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		taken := name == "le" || slices.ContainsFunc(schema, func(f Family) bool { return slices.Contains(f.Labels, name) })
		if taken || !labelName.MatchString(name) || strings.HasPrefix(name, "__") {
			return &errand.FieldError{Field: "labels", Value: name, Limit: "must be the name of a label that no number has: letters, digits and _"}
		}
		if !utf8.ValidString(o.Labels[name]) {
			return &errand.FieldError{Field: "labels." + name, Value: o.Labels[name], Limit: "must be UTF-8"}
		}
	}
	for i, p := range o.Merge {
		if name, ok := strings.CutSuffix(p, "*"); !ok || name == "" || strings.Contains(name, "*") || !utf8.ValidString(name) {
			return &errand.FieldError{Field: fmt.Sprintf("merge[%d]", i), Value: p, Limit: `must be the beginning of names of queues, with "*" after it`}
		}
	}
	return nil
}

// Handler returns a handler that serves the numbers of q, mostly as /metrics. If q cannot be
// read within 2 s, it serves errand_up 0 alone, and why in a comment. Any number of requests share a look at the queue:
// there is at most one a second. The counters never fall while the handler lives.
//
// Handler panics with a [errand.FieldError] if an option is not as described there.
func Handler(q *errand.Queue, o *Options) http.Handler {
	s, err := NewSource(q, o)
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := s.wait(r.Context()).text() // errand_up tells of an error
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(text) // nobody is left who could be told
	})
}

// Write looks at q once and writes its numbers to w. If q is nil, or cannot be read within 2 s,
// Write writes errand_up 0 alone, and returns why. It returns a [errand.FieldError] if an option
// is not as described there; then it writes nothing.
func Write(ctx context.Context, w io.Writer, q *errand.Queue, o *Options) error {
	s, err := NewSource(q, o)
	if err != nil {
		return err
	}
	l := s.wait(ctx)
	_, failed := w.Write(l.text())
	return cmp.Or(failed, wrap(l.err))
}
