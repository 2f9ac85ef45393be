package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

var randomTests = []test{
	{name: "LikeTheModel", run: randomLikeModel, needs: []Feature{Queue, Kinds}},
}

// Random calls return what the rules in package queue return: the states, the
// places, who holds and who waits. Tokens and times aside, but tokens rise.
func randomLikeModel(e *env) {
	if !e.lacks(Listen) {
		for _, s := range []driver.Store{e.a, e.b} { // the model passes nobody over
			soon(e, e.listen(s), "those who wait can be told of their grants")
		}
	}
	for range 12 {
		seed := rand.Uint64()
		m := &model{
			env: e, rand: rand.New(rand.NewPCG(seed, 0)), name: e.name(), stores: []driver.Store{e.a, e.b}, now: 1,
			limit: 1, tokens: make(map[string]int64), marks: make(map[string][]string), log: []string{fmt.Sprintf("seed %d", seed)},
		}
		for range 6 {
			m.ids = append(m.ids, driver.NewID())
		}
		if !e.lacks(Units) {
			m.limit = 1 + m.rand.Int64N(4)
		}
		for range 40 {
			m.step()
			m.compare()
		}
	}
}

// model is a queue beside a store's.
type model struct {
	*env
	rand   *rand.Rand
	name   string
	stores []driver.Store
	ids    []string
	marks  map[string][]string // by claim: the owners', the present one's last
	limit  int64
	log    []string

	q   queue.Queue
	now int64

	tokens map[string]int64 // by claim
	top    int64            // the highest seen in an earlier look
}

// Steps of time and TTLs are so large that the time that the test takes does
// not matter.
const (
	modelStep  = 20 * time.Minute
	modelBrief = 50 * time.Minute
	modelLong  = 10 * time.Hour
)

func (m *model) step() {
	s := m.stores[m.rand.IntN(2)]
	i := m.rand.IntN(len(m.ids))
	if m.lacks(Gathered) {
		s = m.stores[i%2] // a claim is the affair of one Store value
	}
	ttl := modelLong
	if m.rand.IntN(2) == 0 {
		ttl = modelBrief
	}
	units := 1 + m.rand.Int64N(m.limit)
	c := driver.Claim{Name: m.name, ID: m.ids[i], Kind: driver.KindSemaphore, Units: units, Limit: m.limit, TTL: ttl}
	r := ref(c)
	r.Mark = m.mark(c.ID)
	m.now++
	o := &queue.Op{Now: m.now}
	var want driver.State
	var wantErr, err error
	var got driver.Status
	switch n := m.rand.IntN(17); {
	case n < 5:
		c.Try = m.rand.IntN(3) == 0
		c.Overtake = !m.lacks(Overtake) && m.rand.IntN(5) == 0
		if !m.lacks(Units) && m.rand.IntN(15) == 0 {
			c.Limit++
		}
		if !m.lacks(Units) && m.rand.IntN(15) == 0 {
			c.Kind = driver.KindRW
		}
		m.note("enter %d: %v, %d of %d, %v, try %v, overtake %v", i, c.Kind, units, c.Limit, ttl, c.Try, c.Overtake)
		want, wantErr = o.Enter(&m.q, &c)
		got, err = s.Enter(m.ctx, c)
	case n < 8:
		m.note("renew %d: mark %q, %v", i, r.Mark, ttl)
		want = o.Renew(&m.q, r)
		got, err = m.renewRef(s, r)
	case n < 11:
		if !m.lacks(Linger) && m.rand.IntN(4) == 0 {
			r.Linger = modelBrief
		}
		m.note("leave %d: mark %q, linger %v", i, r.Mark, r.Linger)
		want = o.Leave(&m.q, r)
		var was driver.State
		was, err = s.Leave(m.ctx, r)
		if was != want {
			m.fail("Leave returns %v, want %v", was, want)
		}
		got = m.status(c.ID, want)
		// An id is used once. A lingering one stays, to be used in vain.
		if m.q.Find(c.ID) == nil {
			m.ids[i] = driver.NewID()
		}
	case n < 12 && !m.lacks(Resize):
		m.note("resize %d: mark %q, to %d", i, r.Mark, units)
		want = o.Resize(&m.q, r, units)
		got, err = s.Resize(m.ctx, r, units)
	case n < 13 && !m.lacks(Break) && m.rand.IntN(3) == 0:
		m.note("break")
		broken := o.Break(&m.q)
		var entries []driver.Entry
		entries, err = s.Break(m.ctx, m.name)
		if !slices.EqualFunc(entries, broken, func(e driver.Entry, c queue.Claim) bool {
			return e.ID == c.ID && e.Units == c.Units && e.Lingering == c.Lingering && e.State == driver.Holding
		}) {
			m.fail("Break returns %+v, want %+v", entries, broken)
		}
		got = m.status(c.ID, want)
	case n < 14 && !m.lacks(SetLimit):
		was, limit := m.limit, 1+m.rand.Int64N(5)
		if m.rand.IntN(2) == 0 {
			limit = m.limit
		}
		m.note("set limit from %d to %d", was, limit)
		wantErr = o.SetLimit(&m.q, c.Kind, was, limit)
		err = s.SetLimit(m.ctx, m.name, c.Kind, was, limit)
		got = m.status(c.ID, want)
	case n < 16 && !m.lacks(Adopt):
		a, ours := m.adoption(s, c, ttl)
		m.note("adopt %d: units %d, mark %q, current %v", i, a.Units, a.Mark, ours.Token == a.Token)
		want, wantErr = o.Adopt(&m.q, &ours)
		got, err = s.Adopt(m.ctx, a)
		if want == driver.Holding {
			if err == nil && got.Token <= a.Token && slices.Index(m.marks[c.ID], a.Mark) < 0 {
				m.fail("Adopt gives token %d, handed over was %d", got.Token, a.Token)
			}
			m.marks[c.ID] = append(m.marks[c.ID], a.Mark)
		}
	default:
		if m.backing.Advance == nil {
			return
		}
		m.note("%v later", modelStep)
		m.now += queue.Micros(modelStep)
		m.backing.Advance(modelStep)
		return
	}
	var limit *driver.MismatchError
	if wantErr != nil && !errors.As(err, &limit) || wantErr == nil && err != nil {
		m.fail("error %v, want %v", err, wantErr)
	}
	st := m.status(c.ID, want)
	if got.State != want || got.State == driver.Waiting && got.Ahead != st.Ahead || got.State == driver.Holding && got.Behind != st.Behind {
		m.fail("%v, %d ahead, %d behind; want %v, %d ahead, %d behind", got.State, got.Ahead, got.Behind, want, st.Ahead, st.Behind)
	}
}

func (m *model) status(id string, s driver.State) driver.Status {
	return m.q.Status(id, s, m.now, time.Time{}, 0)
}

// mark draws the mark of an owner that the claim has or had.
func (m *model) mark(id string) string {
	marks := m.marks[id]
	switch n := len(marks); {
	case n == 0:
		return ""
	case m.rand.IntN(4) > 0:
		return marks[n-1]
	case n == 1:
		return ""
	default:
		return marks[m.rand.IntN(n)]
	}
}

// adoption draws an Adopt of the claim, as for the store and as for the model,
// whose tokens are others.
func (m *model) adoption(s driver.Store, c driver.Claim, ttl time.Duration) (theirs, ours driver.Adoption) {
	a := driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: 1, Mark: driver.NewID(), TTL: ttl}
	if n := len(m.marks[c.ID]); n > 0 && m.rand.IntN(4) == 0 {
		a.Mark = m.marks[c.ID][n-1] // a repetition
	}
	theirs, ours = a, a
	mine := m.q.Find(c.ID)
	if mine == nil || !mine.Holding() {
		return theirs, ours
	}
	if m.rand.IntN(4) > 0 {
		theirs.Units, ours.Units = mine.Units, mine.Units
	}
	for _, e := range m.look(s).Claims {
		if e.ID == c.ID {
			theirs.Token, ours.Token = e.Token, max(mine.Token, mine.Used)
		}
	}
	if m.rand.IntN(4) == 0 {
		theirs.Token, ours.Token = theirs.Token-1, ours.Token-1 // of an earlier owner
	}
	return theirs, ours
}

// look returns the queue with all its tokens: Ask tells the holders something, and
// changes nothing else.
func (m *model) look(s driver.Store) driver.Queue {
	if m.lacks(Drawn) {
		if err := s.Ask(m.ctx, m.name); err != nil {
			m.fail("Ask: %v", err)
		}
	}
	return m.inspect(s, m.name)
}

// compare fails the test unless the store's queue is the model's.
func (m *model) compare() {
	m.now++
	(&queue.Op{Now: m.now}).Look(&m.q)
	view := func(claims []driver.Entry) (out []string) {
		for _, c := range claims {
			out = append(out, fmt.Sprintf("%s %v %d lingering %v", c.ID, c.State, c.Units, c.Lingering))
		}
		return out
	}
	got := m.look(m.stores[m.rand.IntN(2)])
	if g, w := view(got.Claims), view(m.q.View(m.name, m.now).Claims); !slices.Equal(g, w) {
		m.fail("the queue is\n  %s\nwant\n  %s", strings.Join(g, "\n  "), strings.Join(w, "\n  "))
	}
	for i, c := range got.Claims { // tokens are in the order of the grants
		for j, d := range got.Claims {
			if a, b := m.q.Claims[i], m.q.Claims[j]; a.Holding() && b.Holding() && (a.Token < b.Token) != (c.Token < d.Token) {
				m.fail("claim %d has token %d, claim %d has %d: the later grant has the greater one", i, c.Token, j, d.Token)
			}
		}
		if c.State != driver.Holding || c.Token == 0 && m.lacks(Gathered) {
			continue
		}
		if known := m.tokens[c.ID]; known != c.Token && c.Token <= m.top {
			m.fail("claim %d has token %d, but %d was seen before", i, c.Token, m.top)
		}
		m.tokens[c.ID] = c.Token
	}
	for _, token := range m.tokens {
		m.top = max(m.top, token)
	}
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(m.log, "\n  "))
}
