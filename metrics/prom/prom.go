// Package prom has a collector for programs with a registry of client_golang. The numbers are
// those of package metrics, which needs no other module.
package prom

import (
	"context"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/errandq/errand"
	"github.com/errandq/errand/metrics"
)

// collector is a [prometheus.Collector] of a source.
type collector struct {
	source *metrics.Source
	descs  map[string]*prometheus.Desc
	types  map[string]prometheus.ValueType
}

// NewCollector returns a collector of the numbers of q. It looks at q when it collects, at most
// once a second. If q cannot be read within 2 s, errand_up is 0 and all else is left out.
//
// NewCollector returns a [errand.FieldError] if an option is not as described there.
func NewCollector(q *errand.Queue, o *metrics.Options) (prometheus.Collector, error) {
	source, err := metrics.NewSource(q, o)
	if err != nil {
		return nil, err
	}
	c := &collector{source, map[string]*prometheus.Desc{}, map[string]prometheus.ValueType{}}
	var labels prometheus.Labels
	if o != nil {
		labels = maps.Clone(o.Labels)
	}
	for _, f := range metrics.Families() {
		c.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, labels)
		c.types[f.Name] = prometheus.GaugeValue
		if f.Type == "counter" {
			c.types[f.Name] = prometheus.CounterValue
		}
	}
	return c, nil
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	families, _ := c.source.Gather(context.Background()) // errand_up tells of an error
	for _, f := range families {
		desc := c.descs[f.Name]
		for _, s := range f.Samples {
			h := s.Histogram
			if h == nil {
				to <- prometheus.MustNewConstMetric(desc, c.types[f.Name], s.Value, s.Labels...)
				continue
			}
			buckets := make(map[float64]uint64, len(h.Buckets))
			for _, b := range h.Buckets {
				buckets[b.UpTo] = uint64(b.N)
			}
			to <- prometheus.MustNewConstHistogram(desc, uint64(h.Count), h.Sum, buckets, s.Labels...)
		}
	}
}
