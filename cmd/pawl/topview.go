package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

const (
	headHeight = 3 // lines above the list
	askHeight  = 3 // lines below it while something is asked
)

// listHeight is how many lines the list has.
func (m *topModel) listHeight() int {
	below := 1
	if m.ask != nil {
		below = askHeight
	}
	return max(1, m.height-headHeight-below)
}

// view returns what makes a terminal show the model.
func (m *topModel) view(now time.Time) string {
	c := &canvas{width: m.width, height: m.height, color: m.color}
	m.drawHead(c, now)
	i, n := m.at()
	lines := m.listHeight()
	first := 0
	if n > lines { // the selected one is in the middle, or as far down as there are more
		first = min(max(0, i-lines/2), n-lines)
	}
	for y := range lines {
		style, cells := "", []topCell(nil)
		if k := first + y; k < n {
			if k == i {
				style = inverted
			}
			if m.in != "" {
				cells = m.claimCells(k)
			} else {
				cells = m.rowCells(&m.rows[k])
			}
		}
		c.line(headHeight+1+y, style, cells...)
	}
	m.drawFoot(c)
	return c.String()
}

func (m *topModel) whole(text, style string) topCell {
	return topCell{x: 1, width: m.width, text: text, style: style}
}

func (m *topModel) drawHead(c *canvas, now time.Time) {
	held, waiting := 0, 0
	for i := range m.all {
		if m.all[i].holders > 0 {
			held++
		}
		waiting += m.all[i].waiters
	}
	title := fmt.Sprintf("pawl top  %d held, %d waiting, %s  %s", held, waiting, counted(len(m.all), "name"), m.title)
	c.line(1, "", m.whole(title, bold))
	state := fmt.Sprintf("by %s", map[sorting]string{byName: "name", byHeld: "time held", byWaiters: "waiters", byWait: "oldest wait"}[m.sort])
	if m.reversed {
		state += ", reversed"
	}
	if m.search != "" {
		state += fmt.Sprintf("; %d with %q", len(m.rows), m.search)
	}
	if m.in != "" {
		state = "queue of " + m.in
		if m.queue != nil && m.queue.Kind != 0 {
			state = kindWord(m.queue.Kind) + ", " + state
		}
		if m.queue != nil && len(m.queue.Claims) == 0 {
			state += ": nobody holds it or waits"
		}
	}
	if m.bad > 0 {
		state = fmt.Sprintf("%s can't be read; ", counted(m.bad, "name")) + state
	}
	style := dim
	switch {
	case m.err != nil:
		style = red
		state = fmt.Sprintf("as of %s: %s", ago(now.Sub(m.readAt)), lines(m.err.Error()))
	case m.readAt.IsZero():
		state = "reading…"
	}
	c.line(2, "", m.whole(state, style))
	if m.in != "" {
		c.line(3, "", m.claimColumns("", "LABEL", "HOST", "PID", "SINCE", "TTL LEFT", "CLAIM")...)
	} else {
		c.line(3, "", m.rowColumns("NAME", "HOLDER", "HELD", "WAITING", "OLDEST")...)
	}
}

// Columns of fixed width, with the gap before them.
const (
	gap       = 2
	spanWidth = 9 // as of "99h59m59s"
	waitWidth = 7
)

// rowColumns puts texts into the columns of the list of names. Narrow terminals have
// fewer.
func (m *topModel) rowColumns(name, holder, held, waiting, oldest string) []topCell {
	rest := m.width
	var right []topCell
	add := func(text string, width, needs int) {
		if m.width >= needs {
			rest -= width
			right = append(right, topCell{x: rest + 1, width: width, text: text, right: true})
			rest -= gap
		}
	}
	add(oldest, spanWidth, 60)
	add(waiting, waitWidth, 40)
	add(held, spanWidth, 50)
	if m.width < 30 {
		return append(right, topCell{x: 1, width: rest, text: name})
	}
	first := (rest - gap) * 3 / 5
	return append(right, topCell{x: 1, width: first, text: name}, topCell{x: first + gap + 1, width: rest - first - gap, text: holder})
}

func (m *topModel) rowCells(r *topRow) []topCell {
	holder, held, oldest := "-", "-", "-"
	if r.holders > 0 {
		holder, held = ownerText(&r.holder), span(r.held)
	}
	if r.holders > 1 {
		holder = fmt.Sprintf("%d: %s", r.holders, holder)
	}
	if r.waiters > 0 {
		oldest = span(r.oldest)
	}
	cells := m.rowColumns(r.name, holder, held, strconv.Itoa(r.waiters), oldest)
	for i := range cells {
		if cells[i].width == waitWidth && cells[i].right && r.waiters > 0 {
			cells[i].style = yellow
		}
	}
	return cells
}

// ownerText is who has a claim, short.
func ownerText(e *pawl.Entry) string {
	o := e.Owner
	text := o.Label
	switch {
	case text == "" && o.Host == "":
		text = e.ID
	case text == "":
		text = fmt.Sprintf("%s:%d", o.Host, o.PID)
	case o.Host != "":
		text += "@" + o.Host
	}
	if e.Lingering {
		text = "(lingering) " + text
	}
	return text
}

func (m *topModel) claimColumns(state, label, host, pid, since, ttl, id string) []topCell {
	const stateWidth, pidWidth, idWidth = 9, 7, 26
	cells := []topCell{{x: 1, width: stateWidth, text: state}}
	rest := m.width
	add := func(text string, width, needs int, right bool) {
		if m.width >= needs {
			rest -= width
			cells = append(cells, topCell{x: rest + 1, width: width, text: text, right: right})
			rest -= gap
		}
	}
	add(id, idWidth, 110, false)
	add(ttl, spanWidth, 60, true)
	add(since, spanWidth, 40, true)
	add(pid, pidWidth, 70, true)
	left := stateWidth + gap
	first := (rest - left - gap) / 2
	return append(cells, topCell{x: left + 1, width: first, text: label}, topCell{x: left + first + gap + 1, width: rest - left - first - gap, text: host})
}

func (m *topModel) claimCells(i int) []topCell {
	e, place := &m.queue.Claims[i], 1
	for _, before := range m.queue.Claims[:i] {
		if before.State != driver.Holding {
			place++
		}
	}
	state, since := fmt.Sprintf("waits, %d", place), e.Age
	switch {
	case e.Lingering:
		state, since = "lingering", e.Held
	case e.State == driver.Holding:
		state, since = "holds", e.Held
	}
	return m.claimColumns(state, or(e.Owner.Label, "-"), or(e.Owner.Host, "-"), pid(e), span(since), span(e.TTL), e.ID)
}

func (m *topModel) drawFoot(c *canvas) {
	if m.ask != nil {
		e := &m.ask.entry
		keys := "y: ask to give way   F: take it away   other keys: neither"
		if m.in != "" && m.ask.entry.State == driver.Holding && len(m.claims()) > 0 {
			keys = "y: ask its holders to give way   F: take this away   other keys: neither"
		}
		if e.State != driver.Holding {
			keys = "F: take it out of the queue   other keys: nothing"
		}
		c.line(m.height-2, "", m.whole(told(e), bold))
		c.line(m.height-1, "", m.whole("Release "+m.ask.name+", claim "+e.ID+"?", bold))
		c.line(m.height, "", m.whole(keys, inverted))
		return
	}
	text := "q quit  ↑↓ enter  / search  sort: n name h held w waiters o oldest  r release"
	switch {
	case m.searching:
		text = "search: " + m.search + "_   Enter keeps it, Esc ends it"
	case m.note != "":
		text = m.note
	case m.in != "":
		text = "q quit  ↑↓  r release  Esc back"
	}
	c.line(m.height, "", m.whole(text, ""))
}
