package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// topRow is what top shows of a name.
type topRow struct {
	name    string
	kind    driver.Kind
	holders int
	holder  pawl.Entry    // that holds longest
	held    time.Duration // by it
	waiters int
	oldest  time.Duration // wait
}

func topRowOf(q *pawl.Queue) topRow {
	r := topRow{name: q.Name, kind: q.Kind}
	for _, e := range q.Claims {
		switch {
		case e.State != driver.Holding:
			r.waiters++
			r.oldest = max(r.oldest, e.Age)
		case r.holders == 0 || e.Held > r.held:
			r.holder, r.held = e, e.Held
			fallthrough
		default:
			r.holders++
		}
	}
	return r
}

// sorting is an order of names: by what, the greatest first but for names.
type sorting string

const (
	byName    sorting = "name"
	byHeld    sorting = "held"
	byWaiters sorting = "waiters"
	byWait    sorting = "wait"
)

var sortings = map[key]sorting{"n": byName, "h": byHeld, "w": byWaiters, "o": byWait}

func (s sorting) compare(a, b *topRow) int {
	order := 0
	switch s {
	case byHeld:
		order = cmp.Compare(b.held, a.held)
	case byWaiters:
		order = cmp.Compare(b.waiters, a.waiters)
	case byWait:
		order = cmp.Or(cmp.Compare(b.oldest, a.oldest), cmp.Compare(b.held, a.held))
	}
	return cmp.Or(order, cmp.Compare(a.name, b.name))
}

// topModel is what top shows and how keys change it. It does no I/O.
type topModel struct {
	title         string // the store
	width, height int
	color         bool
	interval      time.Duration

	all      []topRow
	bad      int       // names that cannot be read
	rows     []topRow  // of all, those that are searched for, in order
	readAt   time.Time // when all, or queue, was read last
	err      error     // that it could not be read since
	note     string    // what became of the last action
	sort     sorting
	reversed bool

	search    string
	searching bool
	name      string      // that is selected
	in        string      // the name whose queue is shown, else empty
	queue     *pawl.Queue // of in, once it was read
	claim     string      // that is selected there
	ask       *topAction  // that waits for a yes
}

// topAction is what top does to a claim, once it was confirmed.
type topAction struct {
	name  string
	entry pawl.Entry
	yield bool // ask to give way, not force
}

// setRows takes over what was read.
func (m *topModel) setRows(all []topRow, bad int) {
	m.all, m.bad = all, bad
	m.arrange()
}

// arrange puts those rows that are searched for in order.
func (m *topModel) arrange() {
	m.rows = m.rows[:0]
	for _, r := range m.all {
		if m.search == "" || strings.Contains(strings.ToLower(r.name+"\n"+r.holder.Owner.Label+"\n"+r.holder.Owner.Host), strings.ToLower(m.search)) {
			m.rows = append(m.rows, r)
		}
	}
	slices.SortFunc(m.rows, func(a, b topRow) int {
		if m.reversed {
			a, b = b, a
		}
		return m.sort.compare(&a, &b)
	})
}

// at returns the place of what is selected, of how many.
func (m *topModel) at() (i, n int) {
	if m.in != "" {
		claims := m.claims()
		return max(0, slices.IndexFunc(claims, func(e pawl.Entry) bool { return e.ID == m.claim })), len(claims)
	}
	return max(0, slices.IndexFunc(m.rows, func(r topRow) bool { return r.name == m.name })), len(m.rows)
}

func (m *topModel) claims() []pawl.Entry {
	if m.queue == nil {
		return nil
	}
	return m.queue.Claims
}

// selectAt selects what is at a place, or what comes nearest.
func (m *topModel) selectAt(i int) {
	_, n := m.at()
	if n == 0 {
		return
	}
	i = min(max(i, 0), n-1)
	if m.in != "" {
		m.claim = m.queue.Claims[i].ID
	} else {
		m.name = m.rows[i].name
	}
}

// typed does what a key means. act is what is to be done then, if the user has said yes.
func (m *topModel) typed(k key) (quit bool, act *topAction) {
	switch {
	case m.ask != nil:
		return false, m.confirmed(k)
	case m.searching:
		m.typeSearch(k)
		return false, nil
	}
	m.note = ""
	i, n := m.at()
	page := max(1, m.listHeight()-1)
	switch k {
	case "q":
		return true, nil
	case keyUp, "k":
		m.selectAt(i - 1)
	case keyDown, "j":
		m.selectAt(i + 1)
	case keyPageUp:
		m.selectAt(i - page)
	case keyPageDown:
		m.selectAt(i + page)
	case keyHome, "g":
		m.selectAt(0)
	case keyEnd, "G":
		m.selectAt(n - 1)
	case "r":
		m.propose()
	case keyEscape, keyBackspace:
		if m.in != "" {
			m.in, m.queue, m.claim = "", nil, ""
		} else {
			m.search = ""
			m.arrange()
		}
	default:
		m.typedInList(k, i)
	}
	return false, nil
}

// typedInList does what a key means in the list of names alone.
func (m *topModel) typedInList(k key, i int) {
	if m.in != "" {
		return
	}
	switch s := sortings[k]; {
	case s != "":
		m.reversed = m.sort == s && !m.reversed
		m.sort = s
		m.arrange()
	case k == "/":
		m.searching = true
	case k == keyEnter && len(m.rows) > 0:
		m.name = m.rows[i].name
		m.in, m.queue, m.claim = m.name, nil, ""
	}
}

func (m *topModel) typeSearch(k key) {
	switch k {
	case keyEnter:
		m.searching = false
	case keyEscape:
		m.searching, m.search = false, ""
	case keyBackspace:
		_, n := utf8.DecodeLastRuneInString(m.search)
		m.search = m.search[:len(m.search)-n]
	default:
		if utf8.RuneCountInString(string(k)) == 1 {
			m.search += string(k)
		}
	}
	m.arrange()
}

// propose asks whether the selected claim shall be released.
func (m *topModel) propose() {
	i, n := m.at()
	switch {
	case n == 0:
	case m.in != "":
		m.ask = &topAction{name: m.in, entry: m.queue.Claims[i]}
	case m.rows[i].holders > 1:
		m.note = fmt.Sprintf("%d hold %s: press Enter and choose one", m.rows[i].holders, m.rows[i].name)
	case m.rows[i].holders == 0:
		m.note = "nobody holds " + m.rows[i].name
	default:
		m.ask = &topAction{name: m.rows[i].name, entry: m.rows[i].holder}
	}
	if m.ask != nil && m.ask.entry.Lingering {
		m.note, m.ask = "its holder has ended, and asked for the name to stay taken: see 'pawl release --force'", nil
	}
}

// confirmed returns what was proposed, if the key says so.
func (m *topModel) confirmed(k key) *topAction {
	act := m.ask
	m.ask = nil
	switch {
	case k == "F":
		m.note = "…"
	case k == "y" && act.entry.State == driver.Holding:
		act.yield, m.note = true, "…"
	default:
		m.note = "nothing is done"
		return nil
	}
	return act
}
