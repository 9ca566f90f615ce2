package main

import (
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
)

// colour is an SGR code, "" for none.
type colour string

const (
	red    colour = "31"
	yellow colour = "33"
	green  colour = "32"
	bold   colour = "1"
)

// cell is a cell of a table, made harmless.
type cell struct {
	text   string
	colour colour
}

// text returns a cell for text from anywhere.
func text(s string) cell { return cell{text: safe(s)} }

// number returns a cell for a count.
func number[N int | int64](n N) cell { return cell{text: strconv.FormatInt(int64(n), 10)} }

// in returns the cell in a colour, which only terminals show.
func (c cell) in(colour colour) cell { return cell{c.text, colour} }

// table is a list to print. Columns whose heading begins with a space are aligned to
// the right. One that is headed ID is never cut: its cells are to be copied.
type table struct {
	head []string
	rows [][]cell
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

const (
	columnGap = 2
	// leastColumn is how narrow a column is made to fit a terminal.
	leastColumn = 8
)

// print writes the table. On a terminal long cells are cut, so that no line is longer
// than it is wide.
func (t *table) print(p *printer, s *screen) {
	widths := t.fit(s.width)
	head := make([]cell, len(t.head))
	for i, h := range t.head {
		head[i] = cell{strings.TrimPrefix(h, " "), bold}
	}
	for _, row := range append([][]cell{head}, t.rows...) {
		line := ""
		for i, c := range row {
			shown := runewidth.Truncate(c.text, widths[i], "…")
			pad := strings.Repeat(" ", widths[i]-runewidth.StringWidth(shown))
			if s.colour && c.colour != "" {
				shown = "\x1b[" + string(c.colour) + "m" + shown + "\x1b[0m"
			}
			switch {
			case strings.HasPrefix(t.head[i], " "):
				shown = pad + shown
			case i < len(row)-1:
				shown += pad
			}
			if i > 0 {
				line += strings.Repeat(" ", columnGap)
			}
			line += shown
		}
		p.printf("%s\n", line)
	}
}

// fit returns the widths of the columns. The widest ones are made narrower until a line
// fits into most columns, 0 for any number.
func (t *table) fit(most int) []int {
	widths := make([]int, len(t.head))
	total := columnGap * (len(widths) - 1)
	for i, h := range t.head {
		widths[i] = runewidth.StringWidth(strings.TrimPrefix(h, " "))
		for _, row := range t.rows {
			widths[i] = max(widths[i], runewidth.StringWidth(row[i].text))
		}
		total += widths[i]
	}
	for most > 0 && total > most {
		widest, width := 0, 0
		for i := range widths {
			if widths[i] > width && t.head[i] != "ID" {
				widest, width = i, widths[i]
			}
		}
		if width <= leastColumn {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}
