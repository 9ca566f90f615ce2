package dashboard

import (
	"math"
	"time"

	"github.com/errandq/errand"
)

// bulkQueue is the queue of bulk jobs, and their kind.
const bulkQueue = "errand.bulk"

// bulkData is what the page of the bulk jobs, or of one, shows.
type bulkData struct {
	All    []bulkView
	One    *bulkView
	Paused bool // all of them wait
}

// bulkView is a bulk job with what follows from its numbers.
type bulkView struct {
	errand.BulkInfo
	Taken    int64         // changed or left as they were
	Remain   int64         // of Total
	Measured float64       // jobs a second since it was started
	Ends     time.Duration // how long it takes if it goes on so; 0: not known
	Over     bool
}

func bulkViewOf(b *errand.BulkInfo, now time.Time) bulkView {
	v := bulkView{BulkInfo: *b, Taken: b.Changed + b.Left, Over: !b.EndedAt.IsZero()}
	v.Remain = max(b.Total-v.Taken, 0)
	end := now
	if v.Over {
		end = b.EndedAt
	}
	if spent := end.Sub(b.StartedAt).Seconds(); spent > 0 {
		v.Measured = float64(v.Taken) / spent
	}
	if rest := float64(v.Remain) / v.Measured; !v.Over && !b.Paused && v.Measured > 0 && rest < float64(math.MaxInt32) {
		v.Ends = time.Duration(rest * float64(time.Second))
	}
	return v
}

// State says in words what a bulk job does.
func (v bulkView) Says() string {
	switch {
	case v.Over:
		return ""
	case v.Paused:
		return "waits, as bulk jobs are paused"
	case v.Unserved:
		return "waits for a worker; any worker of the file does it"
	}
	return ""
}

func bulks(x *request) (*content, error) {
	now := x.b.q.Clock().Now
	if text := x.URL.Query().Get("id"); text != "" {
		id, err := errand.ParseID(text)
		if err != nil {
			return nil, err
		}
		all, err := x.b.q.Bulks(x.Context(), id)
		if err == nil && len(all) == 0 {
			err = errand.ErrNotFound
		}
		if err != nil {
			return nil, missing(err, "such bulk job", "It may have ended and been deleted since, as finished jobs are. The page Bulk jobs has the last 100.")
		}
		one := bulkViewOf(&all[0], now)
		return &content{title: "Bulk job", data: &bulkData{One: &one, Paused: one.Paused}, json: all[0]}, nil
	}
	all, err := x.b.q.Bulks(x.Context())
	if err != nil {
		return nil, err
	}
	d := &bulkData{}
	for i := range all {
		d.All = append(d.All, bulkViewOf(&all[i], now))
		d.Paused = d.Paused || all[i].Paused
	}
	return &content{data: d, json: map[string]any{"bulks": all}}, nil
}
