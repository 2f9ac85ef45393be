package pawlhttp

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
)

// How many changes are kept, and how many of them that people look for.
const (
	maxHistory = 4096
	maxNotable = 256

	maxHistoryReply = 200
	maxNotableReply = 20
)

// history is what has happened to claims while the store was watched, the newest last.
type history struct {
	since   time.Time // when watching began
	all     []*happening
	notable []*happening // lost and forced
	forced  map[[2]string]bool
}

type happening struct {
	Happening
	at time.Time
}

// Happening is a change of a claim that was seen.
type Happening struct {
	Name string `json:"name"`
	Change
	pawl.Owner
	AgoMS int64 `json:"ago_ms"`
	// WithinMS: the store was read so long before; it happened since then.
	WithinMS int64 `json:"within_ms,omitempty"`
	// AgeMS is how old the claim was then, HeldMS for how long it had been held.
	AgeMS  int64  `json:"age_ms"`
	HeldMS int64  `json:"held_ms,omitempty"`
	By     string `json:"by,omitempty"` // who has forced it
}

func (h *history) begin() {
	if h.since.IsZero() {
		h.since = time.Now()
	}
}

// add keeps a change, of a claim as it was then. Forced releases are there already: see
// force.
func (h *history) add(name string, c Change, of Claim, at time.Time, within time.Duration) {
	if c.What == "forced" {
		return
	}
	h.keep(&happening{at: at, Happening: Happening{
		Name: name, Change: c, Owner: of.Owner, WithinMS: within.Milliseconds(), AgeMS: of.AgeMS, HeldMS: of.HeldMS,
	}})
}

func (h *history) keep(e *happening) {
	h.all = appendLast(h.all, e, maxHistory)
	if e.What == "lost" || e.What == "forced" {
		h.notable = appendLast(h.notable, e, maxNotable)
	}
}

// appendLast appends, and keeps the last n.
func appendLast(all []*happening, e *happening, n int) []*happening {
	if len(all) >= 2*n {
		all = append(make([]*happening, 0, 2*n), all[len(all)-n+1:]...)
	}
	return append(all, e)
}

// force keeps that claims were taken away, by whom.
func (w *watch) force(name, by string, removed []pawl.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past.begin()
	if w.past.forced == nil || len(w.past.forced) > maxNotable {
		w.past.forced = make(map[[2]string]bool)
	}
	for i := range removed {
		c := claimOf(&removed[i])
		w.past.forced[[2]string{name, c.ID}] = true
		w.past.keep(&happening{at: time.Now(), Happening: Happening{
			Name: name, Change: Change{"forced", c.ID, c.Token}, Owner: c.Owner, AgeMS: c.AgeMS, HeldMS: c.HeldMS, By: by,
		}})
	}
}

// endOf says how a claim that held has ended: gap is the time between the reading that
// had it and the one that has not.
//
// Whoever lives renews with much more time left than there is between two readings. So
// what was about to run out has; after a long gap nothing can be said.
func (w *watch) endOf(name string, c *Claim, gap time.Duration) string {
	key := [2]string{name, c.ID}
	switch {
	case w.past.forced[key]:
		delete(w.past.forced, key)
		return "forced"
	case !c.Lingering && ms(c.TTLMS) <= gap && gap <= 2*w.every+time.Second:
		return "lost"
	}
	return "ended"
}

// after is the claim as it was that much later.
func (c Claim) after(d time.Duration) Claim {
	c.AgeMS += d.Milliseconds()
	if c.Token != 0 || c.HeldMS > 0 {
		c.HeldMS += d.Milliseconds()
	}
	c.TTLMS = max(0, c.TTLMS-d.Milliseconds())
	return c
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// newest returns the last n of those that fit, the newest first.
func newest(all []*happening, n int, fits func(*happening) bool) []Happening {
	out := []Happening{}
	now := time.Now()
	for _, e := range slices.Backward(all) {
		if len(out) == n {
			break
		}
		if fits(e) {
			h := e.Happening
			h.AgoMS = now.Sub(e.at).Milliseconds()
			out = append(out, h)
		}
	}
	// What has ended has done so before the next was granted.
	ends := func(h *Happening) int {
		if h.What == "granted" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Happening) int { return cmp.Or(cmp.Compare(a.AgoMS, b.AgoMS), ends(&a)-ends(&b)) })
	return out
}

type historyReply struct {
	WatchedMS int64       `json:"watched_ms"`
	Happened  []Happening `json:"happened"`
}

// history replies with what has happened to a name while the store was watched.
func (c *call) history() error {
	name, err := c.readable()
	if err != nil {
		return err
	}
	if _, err := c.watch.recent(c.r.Context()); err != nil {
		return errAway
	}
	c.watch.mu.Lock()
	past := c.watch.past
	c.watch.mu.Unlock()
	out := historyReply{Happened: newest(past.all, maxHistoryReply, func(h *happening) bool { return h.Name == name })}
	if !past.since.IsZero() {
		out.WatchedMS = time.Since(past.since).Milliseconds()
	}
	return c.reply(http.StatusOK, out)
}
