package pawlhttp

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Summary is a name in a few words.
type Summary struct {
	Name     string `json:"name"`
	Kind     string `json:"kind,omitempty"`
	Limit    int64  `json:"limit,omitempty"`
	Declared int64  `json:"declared,omitempty"`
	Holders  int    `json:"holders"`
	Holder   *Claim `json:"holder,omitempty"` // who has held it longest
	Waiters  int    `json:"waiters"`
	// OldestWaitMS is for how long the one that came first has waited.
	OldestWaitMS int64 `json:"oldest_wait_ms,omitempty"`
}

// NamesReply is a part of the names, in an order, and what stands out of all.
type NamesReply struct {
	Total         int         `json:"total"`
	Matching      int         `json:"matching"`
	Held          int         `json:"held"`
	Waiting       int         `json:"waiting"`
	Names         []Summary   `json:"names"`
	LongestHeld   []Summary   `json:"longest_held"`
	LongestWaited []Summary   `json:"longest_waited"`
	Notable       []Happening `json:"notable"`
	// ReadMS is how long ago the store was read; Trouble says why it can't be now.
	ReadMS    int64  `json:"read_ms"`
	WatchedMS int64  `json:"watched_ms"`
	Trouble   string `json:"trouble,omitempty"`
}

// How many names there are in a reply, and how many that stand out.
const (
	defaultNames = 100
	maxNames     = 1000
	maxTop       = 5
)

// reading is the store as it was read last.
type reading struct {
	state   map[string]*update
	at      time.Time // zero: it never was
	trouble string
	past    history
}

// recent returns the last reading; if it is old it reads again. It returns an error only
// if ctx ends.
func (w *watch) recent(ctx context.Context) (reading, error) {
	w.mu.Lock()
	fresh, last := w.last != nil && time.Since(w.read) < w.every, w.last
	w.mu.Unlock()
	if !fresh {
		if _, err := w.next(ctx, last, nil); err != nil {
			return reading{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return reading{w.state, w.good, w.last.err, w.past}, nil
}

// row is a name that is sorted among others.
type row struct {
	*update
	holder *Claim // longest held
	first  *Claim // longest waiting
}

func (u *update) row() row {
	r := row{update: u}
	for i := range u.queue.Holders {
		if h := &u.queue.Holders[i]; r.holder == nil || h.HeldMS > r.holder.HeldMS {
			r.holder = h
		}
	}
	for i := range u.queue.Waiters {
		if h := &u.queue.Waiters[i]; r.first == nil || h.AgeMS > r.first.AgeMS {
			r.first = h
		}
	}
	return r
}

// summary is how the name stands now, if nothing has changed since it was read.
func (r row) summary(now time.Time) Summary {
	q := r.queue
	s := Summary{Name: q.Name, Kind: q.Kind, Limit: q.Limit, Declared: q.Declared, Holders: len(q.Holders), Waiters: len(q.Waiters)}
	gap := now.Sub(r.at)
	if r.holder != nil {
		h := r.holder.after(gap)
		s.Holder = &h
	}
	if r.first != nil {
		s.OldestWaitMS = r.first.after(gap).AgeMS
	}
	return s
}

// orders are those that names can be in; ties are by name. Names without a value come last.
var orders = map[string]func(a, b row) int{
	"name": func(a, b row) int { return 0 },
	"kind": func(a, b row) int { return cmp.Compare(a.queue.Kind, b.queue.Kind) },
	"holder": func(a, b row) int {
		return of(a.holder, b.holder, func(a, b *Claim) int {
			return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID))
		})
	},
	"held": func(a, b row) int {
		return of(a.holder, b.holder, func(x, y *Claim) int { return a.at.Add(-ms(x.HeldMS)).Compare(b.at.Add(-ms(y.HeldMS))) })
	},
	"ttl": func(a, b row) int {
		return of(a.holder, b.holder, func(x, y *Claim) int { return a.at.Add(ms(x.TTLMS)).Compare(b.at.Add(ms(y.TTLMS))) })
	},
	"waiters": func(a, b row) int { return len(b.queue.Waiters) - len(a.queue.Waiters) },
	"waited": func(a, b row) int {
		return of(a.first, b.first, func(x, y *Claim) int { return a.at.Add(-ms(x.AgeMS)).Compare(b.at.Add(-ms(y.AgeMS))) })
	},
}

// of compares what both have; who has nothing comes last.
func of(a, b *Claim, compare func(a, b *Claim) int) int {
	switch {
	case a != nil && b != nil:
		return compare(a, b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}

func inOrder(rows []row, order string, reverse bool) {
	slices.SortFunc(rows, func(a, b row) int {
		by := orders[order](a, b)
		if by == 0 {
			by = cmp.Compare(a.name, b.name)
		}
		if reverse {
			return -by
		}
		return by
	})
}

// matches reports whether the name, its kind, or a claim of it has that in it.
func (u *update) matches(lower string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), lower) }
	if has(u.name) || has(u.queue.Kind) {
		return true
	}
	for _, claims := range [][]Claim{u.queue.Holders, u.queue.Waiters} {
		for i := range claims {
			if c := &claims[i]; has(c.Label) || has(c.Host) || has(c.ID) {
				return true
			}
		}
	}
	return false
}

// namesQuery is which names are wanted.
type namesQuery struct {
	search        string
	order         string
	reverse       bool
	offset, limit int
}

func (c *call) namesQuery() (n namesQuery, err error) {
	q, err := c.query("search", "order", "reverse", "offset", "limit")
	if err != nil {
		return n, err
	}
	n.search, n.order = strings.ToLower(q.Get("search")), cmp.Or(q.Get("order"), "held")
	if orders[n.order] == nil {
		return n, invalid("order %q: allowed are %q", n.order, slices.Sorted(maps.Keys(orders)))
	}
	switch text := q.Get("reverse"); text {
	case "", "false", "true":
		n.reverse = text == "true"
	default:
		return n, invalid("reverse %q: allowed are true and false", text)
	}
	if n.offset, err = number("offset", q.Get("offset"), 0, 1<<31-1); err != nil {
		return n, err
	}
	n.limit, err = number("limit", q.Get("limit"), defaultNames, maxNames)
	return n, err
}

// number returns a number of a query; nothing is the default.
func number(what, text string, byDefault, most int) (int, error) {
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, invalid("%s %q: allowed are 0 to %d", what, text, most)
	}
	return n, nil
}

// names replies with some of the names, sorted, as they were when the store was read
// last.
func (c *call) names() error {
	n, err := c.namesQuery()
	if err != nil {
		return err
	}
	last, err := c.watch.recent(c.r.Context())
	if err != nil {
		return errAway
	}
	if last.at.IsZero() {
		return &problem{status: http.StatusServiceUnavailable, code: "unavailable", text: last.trouble, after: 1}
	}
	now := time.Now()
	out := NamesReply{ReadMS: now.Sub(last.at).Milliseconds(), WatchedMS: now.Sub(last.past.since).Milliseconds(), Trouble: last.trouble}
	rows := make([]row, 0, len(last.state))
	for _, u := range last.state {
		if c.caller.right(u.name) >= Read {
			rows = append(rows, u.row())
			out.Held += len(u.queue.Holders)
			out.Waiting += len(u.queue.Waiters)
		}
	}
	out.Total = len(rows)
	out.LongestHeld = top(rows, "held", now, func(r row) bool { return r.holder != nil })
	out.LongestWaited = top(rows, "waited", now, func(r row) bool { return r.first != nil })
	out.Notable = newest(last.past.notable, maxNotableReply, func(h *happening) bool { return c.caller.right(h.Name) >= Read })
	if n.search != "" {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.matches(n.search) })
	}
	out.Matching = len(rows)
	inOrder(rows, n.order, n.reverse)
	begin := min(n.offset, len(rows))
	out.Names = summaries(rows[begin:min(begin+n.limit, len(rows))], now)
	return c.reply(http.StatusOK, out)
}

// top returns the first of those that fit, in that order.
func top(rows []row, order string, now time.Time, fits func(row) bool) []Summary {
	var first []row // sorted, maxTop at the most
	for _, r := range rows {
		if !fits(r) {
			continue
		}
		if len(first) == maxTop && orders[order](first[maxTop-1], r) <= 0 {
			continue
		}
		first = append(first, r)
		inOrder(first, order, false)
		first = first[:min(len(first), maxTop)]
	}
	return summaries(first, now)
}

func summaries(rows []row, now time.Time) []Summary {
	out := make([]Summary, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.summary(now))
	}
	return out
}
