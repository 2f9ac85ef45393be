package main

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns returns how many columns a rune takes on a terminal. Terminals do not agree
// about all of them.
func columns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// mostMarks is how many accents a letter keeps: more reach into other lines.
const mostMarks = 2

// fit returns text that takes no more than n columns and steers no terminal, and how
// many it takes.
func fit(text string, n int) (string, int) {
	var b strings.Builder
	used, marks, cut := 0, 0, 0 // cut is where there is room for the dots
	for _, r := range printable(text) {
		if r == '\n' {
			r = ' '
		}
		w := columns(r)
		if marks++; w > 0 {
			marks = 0
		} else if marks > mostMarks || used == 0 {
			continue
		}
		if used+w > n {
			if n < 1 {
				return "", 0
			}
			short, w := fit(b.String()[:cut], n-1)
			return short + "…", w + 1
		}
		if b.WriteRune(r); used+w < n {
			cut = b.Len()
		}
		used += w
	}
	return b.String(), used
}

// topCell is a text of a line, from a column on, counted from 1, and so many columns wide.
type topCell struct {
	x, width int
	text     string
	right    bool   // aligned
	style    string // one of those below
}

// Styles of cells and lines, as a terminal has them.
const (
	bold     = "1"
	dim      = "2"
	inverted = "7"
	red      = "31"
	yellow   = "33"
)

// canvas is a screen that is being drawn.
type canvas struct {
	strings.Builder
	width, height int
	color         bool
}

func (c *canvas) style(s string) string {
	if s == "" || !c.color && (s == red || s == yellow) {
		return ""
	}
	return "\x1b[" + s + "m"
}

// line draws line y, counted from 1. Each cell is put into its column, so that what the
// terminal takes to be wider or narrower than it is here moves no other.
func (c *canvas) line(y int, style string, cells ...topCell) {
	if y < 1 || y > c.height {
		return
	}
	on := c.style(style)
	fmt.Fprintf(c, "\x1b[%d;1H\x1b[0m\x1b[K%s", y, on)
	if style == inverted {
		c.WriteString(strings.Repeat(" ", c.width))
	}
	for _, l := range cells {
		n := min(l.width, c.width-l.x+1)
		text, used := fit(l.text, n)
		x := l.x
		if l.right {
			x += max(0, n-used)
		}
		if used > 0 {
			fmt.Fprintf(c, "\x1b[%d;%dH%s%s\x1b[0m%s", y, x, c.style(l.style), text, on)
		}
	}
	c.WriteString("\x1b[0m")
}
