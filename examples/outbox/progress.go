package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A tally is where the events are.
type tally struct{ delivered, waiting, dead int }

func (t tally) String() string {
	return fmt.Sprintf("%d of %d delivered, %d waiting, %d dead", t.delivered, t.delivered+t.waiting+t.dead, t.waiting, t.dead)
}

// progress shows a tally that changes: as a bar that stays in its line on a
// terminal, as a plain line each second elsewhere.
type progress struct {
	out    *os.File
	bar    bool
	last   tally
	lastAt time.Time
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, bar: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

const barWidth = 40

func (p *progress) show(t tally, now time.Time) {
	switch all := t.delivered + t.waiting + t.dead; {
	case t == p.last || all == 0:
		return
	case p.bar:
		full := barWidth * t.delivered / all
		gone := barWidth * t.dead / all
		p.print(fmt.Sprintf("\r\x1b[K[%s%s%s] %v", strings.Repeat("=", full),
			strings.Repeat("x", gone), strings.Repeat(" ", barWidth-full-gone), t))
	case now.Sub(p.lastAt) < time.Second && t.waiting > 0:
		return
	default:
		p.print(fmt.Sprintln(t))
	}
	p.last, p.lastAt = t, now
}

// end leaves the bar's line.
func (p *progress) end() {
	if p.bar && p.last != (tally{}) {
		p.print("\n")
	}
	p.last = tally{}
}

// print ignores errors: if the output was closed nobody reads it.
func (p *progress) print(text string) { _, _ = p.out.WriteString(text) }
