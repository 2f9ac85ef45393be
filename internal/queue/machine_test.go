package queue

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
)

// TestRules runs random operations on a queue, as a store would, and checks
// after each what must always be true.
func TestRules(t *testing.T) {
	for range 20 { // of 100 each
		rapid.Check(t, run)
	}
}

func run(t *rapid.T) {
	m := &machine{now: rapid.Int64Range(1, 1<<50).Draw(t, "start"), owners: make(map[string]*owner), marks: make(map[string][]string)}
	t.Repeat(map[string]func(*rapid.T){
		"enter":  m.enter,
		"enter2": m.enter, // more often than the others
		"renew":  m.renew,
		"leave":  m.leave,
		"resize": m.resize,
		"adopt":  m.adopt,
		"limit":  m.setLimit,
		"break":  m.breakUp,
		"drop":   m.drop,
		"look":   func(t *rapid.T) { m.do(t, "", func(o *Op) { o.Look(&m.q) }) },
		"time":   m.time,
		"use":    m.use,
		"forget": m.forget,
	})
}

// machine is a queue with those who use it.
type machine struct {
	q   Queue
	now int64

	owners map[string]*owner // by claim id
	ghosts []*owner          // were broken, and do not know yet
	top    int64             // the highest token used so far
	grants int64
	leaps  int64               // that tokens have made over spare ones
	marks  map[string][]string // by claim id: its owners', the present one's last
}

// owner is what the owner of a claim knows and does.
type owner struct {
	token, granted int64
	spare          bool  // may use spare tokens
	used           int64 // highest
	ends           int64 // believes to hold until then
	below          int64 // a ghost's tokens must stay below this, the next grant's
}

func (w *owner) may(now int64) int64 {
	if !w.spare {
		return w.used
	}
	return max(w.used, w.token+min(Spare, now-w.granted))
}

var (
	genID    = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
	genLimit = rapid.SampledFrom([]int64{1, 1, 3, 3, 3, 4})
	genTTL   = rapid.Int64Range(1, 400)
	genKind  = rapid.SampledFrom([]driver.Kind{driver.KindSemaphore, driver.KindMutex})
)

func clone(q Queue) Queue {
	q.Claims = slices.Clone(q.Claims)
	return q
}

func same(a, b Queue) bool {
	return a.Last == b.Last && a.Kind == b.Kind && a.Limit == b.Limit && a.Declared == b.Declared && slices.Equal(a.Claims, b.Claims)
}

// do runs one operation on the queue as a store has loaded it, for the claim
// self, and checks everything.
func (m *machine) do(t *rapid.T, self string, f func(o *Op)) {
	text, err := json.Marshal(m.q)
	if err != nil {
		t.Fatal(err)
	}
	var loaded Queue
	if err := json.Unmarshal(text, &loaded); err != nil {
		t.Fatal(err)
	}
	if !same(loaded, m.q) {
		t.Fatalf("saved and loaded, %+v became %+v", m.q, loaded)
	}
	m.q = loaded
	before := clone(m.q)
	deaf := rapid.SliceOfNDistinct(genID, 0, 8, rapid.ID).Draw(t, "unreachable")
	o := m.op(deaf)
	f(o)
	m.check(t, before, o, self, deaf)
}

func (m *machine) op(deaf []string) *Op {
	return &Op{Now: m.now, Reachable: func(c *Claim) bool { return !slices.Contains(deaf, c.ID) }}
}

func (m *machine) check(t *rapid.T, before Queue, o *Op, self string, deaf []string) {
	var granted, ungranted []string
	var drawn []Claim
	var used int64
	front := true // no waiting claim seen yet
	for i := range m.q.Claims {
		c := &m.q.Claims[i]
		if c.Expires <= m.now {
			t.Fatalf("claim %s ran out at %d, it is %d", c.ID, c.Expires, m.now)
		}
		if c.Lingering && !c.Holding() {
			t.Fatalf("claim %s lingers without holding", c.ID)
		}
		if c.Holding() {
			used += c.Units
		}
		old := before.Find(c.ID)
		if old != nil && old.Arrived == c.Arrived && old.Expires != c.Expires && c.ID != self {
			t.Fatalf("claim %s ended at %d, ends at %d: only its own calls may change that", c.ID, old.Expires, c.Expires)
		}
		if c.Holding() && (old == nil || old.Token != c.Token) {
			drawn = append(drawn, *c)
			if old == nil || !old.Holding() || old.Expires <= m.now {
				granted = append(granted, c.ID)
			}
		}
	}
	slices.SortFunc(drawn, func(a, b Claim) int { return cmp.Compare(a.Token, b.Token) })
	for i := range drawn {
		m.granted(t, &drawn[i])
	}
	// SetLimit takes nothing away, not even what time has freed and given just before.
	if used > max(m.q.Limit, before.Limit) && used > before.used() {
		t.Fatalf("%d units are held, the limit is %d: %+v", used, m.q.Limit, m.q.Claims)
	}
	for i := range m.q.Claims {
		c := &m.q.Claims[i]
		if c.Holding() {
			if !slices.Contains(granted, c.ID) || c.Overtake {
				continue
			}
			for _, e := range ungranted {
				if e == self || !slices.Contains(deaf, e) || slices.Contains(deaf, c.ID) && c.ID != self {
					t.Fatalf("claim %s was granted past %s: %+v", c.ID, e, m.q.Claims)
				}
			}
			continue
		}
		if c.Units > m.q.Limit { // it stands in nobody's way
			continue
		}
		if c.Units <= before.Limit { // else it was so until SetLimit
			ungranted = append(ungranted, c.ID)
		}
		if (front || c.Overtake) && used+c.Units <= m.q.Limit {
			t.Fatalf("claim %s fits, but waits: %+v", c.ID, m.q)
		}
		front = false
	}
	m.order(t, before)
	m.signals(t, o, self, granted)
	if ahead := m.grants + m.leaps*(Spare+1); m.q.Last > m.now+ahead {
		t.Fatalf("tokens are at %d, the clock at %d: only %d apart are explained", m.q.Last, m.now, ahead)
	}
	for id, w := range m.owners { // who was not told to go is dead or told by its own clock
		if m.q.Find(id) == nil && w.ends <= m.now {
			delete(m.owners, id)
		}
	}
}

// granted checks the token of a grant and notes what its owner may do.
func (m *machine) granted(t *rapid.T, c *Claim) {
	m.grants++
	if c.Token <= m.top {
		t.Fatalf("claim %s got token %d, but %d was used before", c.ID, c.Token, m.top)
	}
	if c.Token > m.q.Last {
		t.Fatalf("claim %s got token %d, Last is %d", c.ID, c.Token, m.q.Last)
	}
	m.top = c.Token
	for _, g := range m.ghosts {
		g.below = min(g.below, c.Token)
	}
	if c.Lingering { // it left in that moment
		return
	}
	m.owners[c.ID] = &owner{
		token: c.Token, used: c.Token, granted: m.now, spare: c.Alone, ends: c.Expires, below: 1<<63 - 1,
	}
}

// order checks that claims keep their places.
func (m *machine) order(t *rapid.T, before Queue) {
	var stayed, were []string
	for _, c := range m.q.Claims {
		if old := before.Find(c.ID); old != nil && old.Arrived == c.Arrived {
			stayed = append(stayed, c.ID)
		} else if c.ID != m.q.Claims[len(m.q.Claims)-1].ID {
			t.Fatalf("claim %s arrived, but not at the end", c.ID)
		}
	}
	for _, c := range before.Claims {
		if slices.Contains(stayed, c.ID) {
			were = append(were, c.ID)
		}
	}
	if !slices.Equal(stayed, were) {
		t.Fatalf("the order was %v and is %v", were, stayed)
	}
}

// signals checks that exactly those are told that hold now and did not ask.
func (m *machine) signals(t *rapid.T, o *Op, self string, granted []string) {
	var told []string
	for _, s := range o.Signals {
		c := m.q.Find(s.Claim.ID)
		if s.Kind != Granted || c == nil { // granted by an expiry, and broken or dropped then
			continue
		}
		told = append(told, c.ID)
		if *c != s.Claim {
			t.Fatalf("told of the grant %+v, which is %+v", s.Claim, c)
		}
	}
	granted = slices.DeleteFunc(granted, func(id string) bool { return id == self })
	slices.Sort(told)
	slices.Sort(granted)
	if !slices.Equal(told, granted) {
		t.Fatalf("granted were %v, told are %v", granted, told)
	}
}
