package apitest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// sampled is a store with samples of a test.
type sampled struct {
	storage.Store
	samples []storage.Sample
	stats   []storage.LaneStats
}

func (s *sampled) History(_ context.Context, since time.Time) ([]storage.Sample, error) {
	from := 0
	for i := range s.samples {
		if s.samples[i].At.Before(since) {
			from = i
		}
	}
	return s.samples[from:], nil
}

func (s *sampled) Stats(context.Context) ([]storage.LaneStats, error) { return s.stats, nil }

// sampledQueue returns a queue at a time whose store has samples.
func sampledQueue(t *testing.T, now time.Time, s *sampled) *errand.Queue {
	t.Helper()
	_, s.Store = memoryQueue(t, errand.Options{})
	q, err := errand.New(t.Context(), s, &errand.Options{Logger: quiet, Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// sampleOf is a sample of one lane, with so many done.
func sampleOf(at time.Time, done int64) storage.Sample {
	return storage.Sample{At: at, Lanes: []storage.SampledLane{{Lane: storage.Lane{Queue: "q", Kind: "k"}, Total: storage.Totals{Done: done}, Dead: 3}}}
}

// Periods are of five minutes, those of hours after a day, and the last one ends now. One of a full
// disk is part of that before it.
func TestQueue_History(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 2, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-2*time.Minute - d) }
	s := &sampled{
		samples: []storage.Sample{
			sampleOf(ago(26*time.Hour-10*time.Minute), 0), // the first of its hour, of which others are gone
			sampleOf(ago(25*time.Hour-5*time.Minute), 60), // of an hour that is a day ago in part
			sampleOf(ago(25*time.Hour-40*time.Minute), 60),
			sampleOf(ago(2*time.Hour), 60),
			{At: ago(time.Hour), Unknown: true},
			sampleOf(ago(10*time.Minute), 75),
			sampleOf(ago(0), 80),
		},
		stats: []storage.LaneStats{
			{Lane: storage.Lane{Queue: "q", Kind: "k"}, Number: 1, Total: storage.Totals{Enqueued: 1, Done: 84, Failed: 2}},
			{Lane: storage.Lane{Queue: "q", Kind: "late"}, Number: storage.SampledLanes + 1, Total: storage.Totals{Done: 5}},
			{Lane: storage.Lane{Queue: "q", Kind: "later"}, Number: storage.SampledLanes + 2, Total: storage.Totals{Done: 6}},
		},
	}
	q := sampledQueue(t, now, s)
	all, err := q.History(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		text := fmt.Sprint(p.From.Format("02 15:04"), "-", p.To.Format("02 15:04"))
		for _, l := range p.Lanes {
			text += fmt.Sprintf(" %s/%s +%d dead %d", l.Queue, l.Kind, l.Done, l.Dead)
		}
		got = append(got, text)
	}
	want := []string{
		"25 10:10-25 11:00 q/k +60 dead 3",
		"25 11:05-25 11:40 q/k +0 dead 3",
		"25 11:40-25 12:00 q/k +0 dead 3",
		"26 10:00-26 11:05 q/k +15 dead 3",
		"26 11:50-26 11:55 q/k +5 dead 3",
		"26 12:00-26 12:02 q/k +4 dead 3 / +11 dead 0",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the periods are\n%q, want\n%q", got, want)
	}
	for since, want := range map[time.Time]int{ago(5 * time.Minute): 1, ago(6 * time.Minute): 2, now: 0} {
		if all, err = q.History(t.Context(), since); err != nil || len(all) != want {
			t.Errorf("since %v: %d periods, %v, want %d", since, len(all), err, want)
		}
	}
	s.samples = nil
	if all, err = q.History(t.Context(), time.Time{}); err != nil || len(all) != 0 {
		t.Errorf("without samples: %v, %v", all, err)
	}
	bare, err := errand.New(t.Context(), struct{ storage.Store }{s.Store}, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = bare.History(t.Context(), time.Time{}); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("of a store that keeps none: %v, want ErrUnsupportedDB", err)
	}
}

// A rate is of what has changed since five to ten minutes ago. What cannot be known is not 0.
func TestRate(t *testing.T) {
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		now     time.Time
		samples []storage.Sample
		number  int64
		want    float64 // done, of 100; below 0: not known
	}{
		"no history":                 {at(8), nil, 1, -1},
		"a file of four minutes":     {at(4), []storage.Sample{sampleOf(at(0), 0)}, 1, -1},
		"nine minutes of a file":     {at(9), []storage.Sample{sampleOf(at(0), 0), sampleOf(at(5), 90)}, 1, -1},
		"ten minutes of a file":      {at(10), []storage.Sample{sampleOf(at(0), 0), sampleOf(at(5), 90)}, 1, 2},
		"nine minutes":               {at(9), []storage.Sample{sampleOf(at(-5), 20), sampleOf(at(0), 91), sampleOf(at(5), 95)}, 1, 1},
		"nothing for an hour":        {at(8), []storage.Sample{sampleOf(at(-60), 20)}, 1, 0},
		"nothing until a minute ago": {at(8), []storage.Sample{sampleOf(at(-60), 20), sampleOf(at(5), 92)}, 1, 1},
		"a full disk":                {at(8), []storage.Sample{sampleOf(at(-60), 20), {At: at(0), Unknown: true}}, 1, -1},
		"a young lane":               {at(10), []storage.Sample{{At: at(0)}, {At: at(5)}}, 2, 20},
		"one of too many":            {at(10), []storage.Sample{sampleOf(at(0), 0), sampleOf(at(5), 90)}, storage.SampledLanes + 1, -1},
		"a clock that went back":     {at(10), []storage.Sample{sampleOf(at(0), 0), sampleOf(at(5), 900)}, 1, 0},
	} {
		lane := storage.Lane{Queue: "q", Kind: "k"}
		q := sampledQueue(t, c.now, &sampled{samples: c.samples, stats: []storage.LaneStats{{Lane: lane, Number: c.number, Total: storage.Totals{Done: 100}, Succeeded: noon}}})
		all, err := q.Stats(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %v, %v", name, all, err)
		}
		switch r := all[0].Rate; {
		case r == nil:
			if c.want >= 0 {
				t.Errorf("%s: not known, want %v", name, c.want)
			}
		case r.Done != c.want || c.now.Sub(r.Since) < 5*time.Minute || c.now.Sub(r.Since) >= 10*time.Minute:
			t.Errorf("%s: %+v, want %v done", name, *r, c.want)
		}
	}
}

// What a program has done is told by another that opens the file later, also only to read it.
func TestHistory_OfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	o := errand.Options{Logger: quiet, Clock: func() time.Time { return now }}
	q, err := errand.Open(t.Context(), path, &o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for range 10 {
			enqueue(t, q, note{}, nil)
		}
		now = now.Add(5 * time.Minute)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	o.SQLite.ReadOnly = true
	if q, err = errand.Open(t.Context(), path, &o); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	all, err := q.Stats(t.Context())
	if err != nil || len(all) != 1 || all[0].Rate == nil || all[0].Rate.Enqueued != 2 {
		t.Errorf("Stats gave %+v, %v, want 2 enqueued a minute", all, err)
	}
	periods, err := q.History(t.Context(), time.Time{})
	if err != nil || len(periods) != 3 {
		t.Fatalf("History gave %+v, %v", periods, err)
	}
	for i, p := range periods {
		if len(p.Lanes) != 1 || p.Lanes[0].Enqueued != 10 || p.Lanes[0].Ready != int64(i)*10 || p.To.Sub(p.From) != 5*time.Minute {
			t.Errorf("period %d is %+v", i, p)
		}
	}
}
