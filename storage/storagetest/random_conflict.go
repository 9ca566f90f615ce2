package storagetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// conflicts draws what becomes of jobs whose keys are held, for real and the model.
func (h *history) conflicts(t *rapid.T, jobs []storage.NewJob) (model []storage.NewJob) {
	for i := range jobs {
		n := &jobs[i]
		if n.Unique == "" {
			continue
		}
		if n.UniqueScope == storage.UniqueLive && rapid.IntRange(0, 3).Draw(t, "for") == 0 {
			n.UniqueFor = rapid.SampledFrom([]time.Duration{1, time.Second, time.Minute}).Draw(t, "window")
		}
		if rapid.IntRange(0, 2).Draw(t, "conflict") == 0 || n.UniqueScope == storage.UniqueForever { // which the library refuses
			continue
		}
		c := &storage.Conflict{Mode: storage.ConflictMode(rapid.IntRange(0, int(storage.Fail)).Draw(t, "mode")), Fresh: rapid.Bool().Draw(t, "fresh")}
		if c.Mode == storage.Fail && rapid.IntRange(0, 3).Draw(t, "fail") > 0 {
			c.Mode = storage.Replace
		}
		if c.Mode == storage.Debounce {
			c.Quiet = rapid.SampledFrom([]time.Duration{time.Microsecond + 1, time.Second, 10 * time.Second}).Draw(t, "quiet")
			c.MaxWait = rapid.SampledFrom([]time.Duration{0, time.Second + 1, time.Minute}).Draw(t, "max wait")
			n.DueAt, n.Delay = time.Time{}, 0
		}
		n.Args = slices.Repeat([]byte{byte(rapid.IntRange(1, 3).Draw(t, "content"))}, len(n.Args))
		n.Conflict = c
	}
	model = slices.Clone(jobs)
	if len(jobs) == 1 && jobs[0].Conflict.Replaces() && rapid.Bool().Draw(t, "merge") {
		var old []byte
		if j := h.model.waiting(h.now, jobs[0].Unique, jobs[0].Conflict); j != nil && rapid.IntRange(0, 3).Draw(t, "knows") > 0 {
			old = append([]byte{}, j.Args...)
		} else if rapid.Bool().Draw(t, "guesses") {
			old = []byte("other")
		}
		for _, n := range []*storage.NewJob{&jobs[0], &model[0]} {
			c := *n.Conflict
			c.Merge = &storage.Merge{Old: old}
			n.Conflict = &c
		}
	}
	return model
}
