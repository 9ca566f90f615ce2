package main

import (
	"fmt"
	"strings"
	"time"
)

// progress is a bar on a terminal for work that takes long. It is nil, and shows
// nothing, elsewhere.
type progress struct {
	s     *screen
	label string
	total int64 // 0: not known
	begun time.Time
	drawn time.Time
}

const (
	barWidth = 30
	// barAfter is how long work goes on before it has a bar, and barEvery how often the
	// bar is drawn.
	barAfter = 500 * time.Millisecond
	barEvery = 100 * time.Millisecond
)

// progress begins a bar for total items, 0 if their number is not known.
func (t *tool) progress(label string, total int64) *progress {
	if !t.errs.terminal() {
		return nil
	}
	return &progress{s: t.errs, label: label, total: total, begun: time.Now()}
}

// set shows that n items are done.
func (p *progress) set(n int64) {
	if p == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.begun) < barAfter || now.Sub(p.drawn) < barEvery {
		return
	}
	p.drawn = now
	_, _ = fmt.Fprintf(p.s, "\r\x1b[K%s", p.line(n, now)) // a bar that cannot be drawn is no reason to stop
}

func (p *progress) line(n int64, now time.Time) string {
	rate := float64(n) / now.Sub(p.begun).Seconds()
	if p.total <= 0 {
		return fmt.Sprintf("%s %d, %.0f/s", p.label, n, rate)
	}
	share := min(float64(n)/float64(p.total), 1)
	full := int(share * barWidth)
	return fmt.Sprintf("%s [%s%s] %3.0f%% %d of %d, %.0f/s", p.label, strings.Repeat("=", full),
		strings.Repeat(" ", barWidth-full), 100*share, n, p.total, rate)
}

// end takes the bar away.
func (p *progress) end() {
	if p != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.s, "\r\x1b[K")
	}
}
