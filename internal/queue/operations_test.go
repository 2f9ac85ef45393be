package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/pawl-go/pawl/driver"
)

// looked is the queue after what time alone has brought about.
func (m *machine) looked(o *Op, self string) Queue {
	q := clone(m.q)
	(&Op{Now: m.now, Reachable: o.Reachable, self: self}).Look(&q)
	return q
}

func (m *machine) enter(t *rapid.T) {
	limit := genLimit.Draw(t, "limit")
	if m.q.InUse() && rapid.IntRange(0, 9).Draw(t, "limit as it is") > 0 {
		limit = m.asked(t)
	}
	c := driver.Claim{
		ID: genID.Draw(t, "id"), Kind: m.kind(t), Units: rapid.Int64Range(1, limit).Draw(t, "units"), Limit: limit,
		Overtake: rapid.IntRange(0, 4).Draw(t, "overtake") == 0, Owner: driver.Owner{Label: `"it"`, Host: "here", PID: 7},
	}
	if rapid.Bool().Draw(t, "all") {
		c.Units = limit
	}
	ttl := genTTL.Draw(t, "ttl")
	c.TTL, c.Try = Span(ttl), rapid.Bool().Draw(t, "try")
	patient, hasty := c, c
	patient.Try, hasty.Try = false, true
	session := "session of " + c.ID
	m.do(t, c.ID, func(o *Op) {
		was := m.looked(o, c.ID)
		old := was.Find(c.ID)
		plain, tried := clone(m.q), clone(m.q)
		o.Session = session
		p := Op{Now: m.now, Reachable: o.Reachable, Session: session}
		wouldBe, _ := p.Enter(&plain, &patient)
		p = Op{Now: m.now, Reachable: o.Reachable, Session: session}
		triedTo, _ := p.Enter(&tried, &hasty)
		if (wouldBe == driver.Holding) != (triedTo == driver.Holding) {
			t.Fatalf("Enter returns %v, to try %v", wouldBe, triedTo)
		}

		st, err := o.Enter(&m.q, &c)
		now := m.q.Find(c.ID)
		var le *driver.MismatchError
		switch {
		case old != nil && (old.Lingering || old.Mark != ""):
			if st != driver.Gone || err != nil || *now != *old {
				t.Fatalf("Enter of a lingering claim: %v, %v, %+v", st, err, now)
			}
			return
		case old != nil:
			want := *old
			want.Expires, want.Session = max(old.Expires, m.now+ttl), session
			if st != stateOf(old) || err != nil || *now != want {
				t.Fatalf("repeated Enter of %+v: %v, %v, %+v", old, st, err, now)
			}
		case was.InUse() && was.Kind != c.Kind:
			if !errors.As(err, &le) || le.HaveKind != was.Kind || le.WantKind != c.Kind || st != driver.Gone || now != nil {
				t.Fatalf("Enter as %v where it is %v: %v, %v", c.Kind, was.Kind, st, err)
			}
			return
		case was.InUse() && was.Limit >= c.Units && was.Limit != limit && was.Declared != limit || was.InUse() && was.Limit < c.Units:
			if !errors.As(err, &le) || le.Have != was.Limit || le.Want != limit || le.Units != 0 && le.Units != c.Units || st != driver.Gone || now != nil {
				t.Fatalf("Enter with limit %d where it is %d: %v, %v", limit, was.Limit, st, err)
			}
			return
		case st == driver.Refused:
			if !c.Try || err != nil || now != nil {
				t.Fatalf("refused: try is %v, error %v, %+v", c.Try, err, now)
			}
			return
		default:
			if err != nil || now == nil || st != stateOf(now) || now.Expires != m.now+ttl || now.Arrived != m.now ||
				now.Units != c.Units || m.q.Limit != limit && m.q.Declared != limit || m.q.Kind != c.Kind || c.Try && st != driver.Holding {
				t.Fatalf("Enter %+v of %d: %v, %v, %+v", c, limit, st, err, now)
			}
		}
		m.extend(now)
		again := clone(m.q)
		p = Op{Now: m.now, Reachable: o.Reachable, Session: session}
		if s2, err := p.Enter(&again, &c); s2 != st || err != nil || !same(again, m.q) {
			t.Fatalf("Enter returned %v, its repetition %v, %v, and made of %+v\n%+v", st, s2, err, m.q, again)
		}
	})
}

func (m *machine) renew(t *rapid.T) {
	id, ttl := genID.Draw(t, "id"), genTTL.Draw(t, "ttl")
	used, mark := m.says(t, id), m.mark(t, id)
	if rapid.IntRange(0, 9).Draw(t, "says what cannot be") == 0 {
		used = 1<<63 - 1
		m.leaps++
	}
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Renew(&m.q, driver.Ref{ID: id, Mark: mark, TTL: Span(ttl), Used: used})
		now := m.q.Find(id)
		if old == nil || old.Lingering || old.Mark != mark {
			if st != driver.Gone || (now == nil) != (old == nil) || now != nil && *now != *old {
				t.Fatalf("Renew of %+v: %v, %+v", old, st, now)
			}
			return
		}
		if st != stateOf(old) || now.Expires != max(old.Expires, m.now+ttl) || now.Holding() && now.Used < min(used, now.Token+Spare) {
			t.Fatalf("Renew of %+v: %v, %+v", old, st, now)
		}
		m.extend(now)
	})
}

func (m *machine) extend(c *Claim) {
	if w := m.owners[c.ID]; w != nil {
		w.ends = c.Expires
	}
}

// says returns what a claim's owner says of its used tokens: the truth or
// nothing.
func (m *machine) says(t *rapid.T, id string) int64 {
	if w := m.owners[id]; w != nil && rapid.Bool().Draw(t, "says") {
		return w.used
	}
	return 0
}

func (m *machine) leave(t *rapid.T) {
	id := genID.Draw(t, "id")
	linger := max(0, rapid.Int64Range(-200, 200).Draw(t, "linger"))
	var used int64
	w := m.owners[id]
	if w != nil && w.used > w.token {
		used = w.used // 0 would mean that only the grant's own token was used
	}
	mark, owns := m.mark(t, id), false
	ref := driver.Ref{ID: id, Mark: mark, Used: used, Linger: Span(linger)}
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Leave(&m.q, ref)
		now := m.q.Find(id)
		owns = old == nil || old.Mark == mark
		switch {
		case !owns:
			if st != driver.Gone || *now != *old {
				t.Fatalf("Leave of %+v by another owner: %v, %+v", old, st, now)
			}
		case old == nil:
			if st != driver.Gone || now != nil {
				t.Fatalf("Leave of a claim that is not there: %v, %+v", st, now)
			}
		case old.Lingering:
			if *now != *old {
				t.Fatalf("a repeated Leave made of %+v %+v", old, now)
			}
		case old.Holding() && linger > 0:
			if st != driver.Holding || !now.Lingering || now.Expires != m.now+linger || now.Token != old.Token {
				t.Fatalf("Leave of %+v with linger %d: %v, %+v", old, linger, st, now)
			}
		default:
			if st != stateOf(old) || now != nil {
				t.Fatalf("Leave of %+v: %v, %+v", old, st, now)
			}
		}
		if owns {
			delete(m.owners, id)
		}
		after := clone(m.q)
		if p := (Op{Now: m.now, Reachable: o.Reachable}); p.Leave(&after, ref) != driver.Gone && now == nil || !same(after, m.q) {
			t.Fatalf("a repeated Leave made of %+v\n%+v", m.q, after)
		}
	})
}

func (m *machine) resize(t *rapid.T) {
	id, units := genID.Draw(t, "id"), rapid.Int64Range(1, 5).Draw(t, "units")
	var used int64
	late := false
	if w := m.owners[id]; w != nil {
		used = w.used
		if late = w.token > 1 && rapid.IntRange(0, 3).Draw(t, "late") == 0; late {
			used = w.token - 1
		}
	}
	mark := m.mark(t, id)
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Resize(&m.q, driver.Ref{ID: id, Mark: mark, Used: used}, units)
		now := m.q.Find(id)
		switch {
		case old == nil || old.Lingering || old.Mark != mark:
			if st != driver.Gone || old != nil && *now != *old {
				t.Fatalf("Resize of %+v: %v", old, st)
			}
		case !old.Holding():
			if st != driver.Waiting {
				t.Fatalf("Resize of %+v: %v", old, st)
			}
		case late && old.Token > used:
			if st != driver.Holding || *now != *old {
				t.Fatalf("a late Resize of %+v to %d: %v, %+v", old, units, st, now)
			}
		case units > old.Units && was.used()-old.Units+units > was.Limit:
			if st != driver.Refused || *now != *old {
				t.Fatalf("Resize of %+v to %d: %v, %+v", old, units, st, now)
			}
		default:
			if st != driver.Holding || now.Units != units || now.Expires != old.Expires ||
				(now.Token != old.Token) != (units > old.Units) {
				t.Fatalf("Resize of %+v to %d: %v, %+v", old, units, st, now)
			}
		}
	})
	if w, c := m.owners[id], m.q.Find(id); w != nil && c != nil {
		w.spare = c.Alone
	}
}

func (m *machine) setLimit(t *rapid.T) {
	was, limit := genLimit.Draw(t, "was"), genLimit.Draw(t, "limit")
	if m.q.InUse() && rapid.IntRange(0, 4).Draw(t, "was as it is") > 0 {
		was = m.asked(t)
	}
	kind := m.kind(t)
	m.do(t, "", func(o *Op) {
		old := m.looked(o, "")
		declared := old.Declared
		switch {
		case !old.InUse():
			declared = was
		case declared == 0:
			declared = old.Limit
		}
		err := o.SetLimit(&m.q, kind, was, limit)
		var le *driver.MismatchError
		if old.InUse() && kind != old.Kind {
			if !errors.As(err, &le) || le.HaveKind != old.Kind || le.WantKind != kind || !same(m.q, old) {
				t.Fatalf("SetLimit of a %v of %+v: %v, %+v", kind, old, err, m.q)
			}
			return
		}
		if old.InUse() && was != old.Limit && was != declared {
			if !errors.As(err, &le) || le.Have != old.Limit || le.Want != was || m.q.Limit != old.Limit || m.q.Declared != old.Declared {
				t.Fatalf("SetLimit from %d to %d of %+v: %v", was, limit, old, err)
			}
			return
		}
		if declared == limit {
			declared = 0
		}
		if err != nil || m.q.Limit != limit || m.q.Declared != declared || len(m.q.Claims) != len(old.Claims) {
			t.Fatalf("SetLimit from %d to %d of %+v: %v, %+v", was, limit, old, err, m.q)
		}
		m.leaps++
	})
}

// adopt gives a claim to another owner, who may be late, or ask again.
func (m *machine) adopt(t *rapid.T) {
	id, ttl := genID.Draw(t, "id"), genTTL.Draw(t, "ttl")
	a := driver.Adoption{ID: id, Kind: m.kind(t), Units: rapid.Int64Range(1, 4).Draw(t, "units"), TTL: Span(ttl)}
	known := m.marks[id]
	if a.Mark = fmt.Sprintf("mark %d", len(known)); len(known) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		a.Mark = known[len(known)-1]
	}
	w := m.owners[id]
	if c := m.q.Find(id); c != nil && c.Holding() && w != nil {
		if rapid.IntRange(0, 3).Draw(t, "units as they are") > 0 {
			a.Units = c.Units
		}
		a.Token = w.used + rapid.SampledFrom([]int64{0, 0, 0, 0, -1, Spare + 1}).Draw(t, "token off by")
	}
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		o.Session = "adopter"
		st, err := o.Adopt(&m.q, &a)
		now := m.q.Find(id)
		var le *driver.MismatchError
		switch {
		case was.InUse() && was.Kind != a.Kind:
			if !errors.As(err, &le) || le.HaveKind != was.Kind || le.WantKind != a.Kind || !same(m.q, was) {
				t.Fatalf("Adopt as %v of %+v: %v, %v", a.Kind, was, st, err)
			}
		case old == nil || old.Lingering || !old.Holding():
			if st != driver.Gone || err != nil || !same(m.q, was) {
				t.Fatalf("Adopt of %+v: %v, %v, %+v", old, st, err, now)
			}
		case a.Units != old.Units:
			if st != driver.Refused || err != nil || !same(m.q, was) {
				t.Fatalf("Adopt of %+v by %+v: %v, %v, %+v", old, a, st, err, now)
			}
		case old.Mark == a.Mark:
			want := *old
			want.Expires, want.Session = max(old.Expires, m.now+ttl), "adopter"
			if st != driver.Holding || err != nil || *now != want {
				t.Fatalf("repeated Adopt of %+v: %v, %v, %+v", old, st, err, now)
			}
			m.extend(now)
		case a.Token < max(old.Token, old.Used) || a.Token > old.Token+Spare:
			if st != driver.Refused || err != nil || !same(m.q, was) {
				t.Fatalf("Adopt of %+v by %+v: %v, %v, %+v", old, a, st, err, now)
			}
		default:
			if st != driver.Holding || err != nil || now.Mark != a.Mark || now.Token <= a.Token || now.Units != old.Units ||
				now.Expires != m.now+ttl || now.Session != "adopter" || m.q.used() != was.used() {
				t.Fatalf("Adopt of %+v by %+v: %v, %v, %+v", old, a, st, err, now)
			}
			m.marks[id] = append(m.marks[id], a.Mark)
		}
	})
}

// kind draws a kind, mostly that of the queue.
func (m *machine) kind(t *rapid.T) driver.Kind {
	if m.q.InUse() && rapid.IntRange(0, 9).Draw(t, "kind as it is") > 0 {
		return m.q.Kind
	}
	return genKind.Draw(t, "kind")
}

// mark draws the mark of an owner that the claim has or had.
func (m *machine) mark(t *rapid.T, id string) string {
	c := m.q.Find(id)
	switch {
	case c != nil && rapid.IntRange(0, 3).Draw(t, "mark as it is") > 0:
		return c.Mark
	case len(m.marks[id]) == 0:
		return ""
	}
	return rapid.SampledFrom(append([]string{""}, m.marks[id]...)).Draw(t, "mark")
}

// asked draws a limit that a claim may ask for.
func (m *machine) asked(t *rapid.T) int64 {
	if m.q.Declared != 0 && rapid.Bool().Draw(t, "as declared") {
		return m.q.Declared
	}
	return m.q.Limit
}

func (m *machine) breakUp(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	m.do(t, "", func(o *Op) {
		was := m.looked(o, "")
		var want []string
		for _, c := range was.Claims {
			if c.Holding() {
				want = append(want, c.ID)
			}
			if w := m.owners[c.ID]; w != nil && c.Holding() {
				delete(m.owners, c.ID)
				m.ghosts = append(m.ghosts, w)
			}
		}
		var got, told []string
		for _, c := range o.Break(&m.q) {
			got = append(got, c.ID)
			if now := m.q.Find(c.ID); now != nil {
				t.Fatalf("broken, but there: %+v", now)
			}
		}
		for _, s := range o.Signals {
			if s.Kind == Broken {
				told = append(told, s.Claim.ID)
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(told, want) {
			t.Fatalf("holding were %v, broken %v, told %v", want, got, told)
		}
		m.leaps += int64(len(got))
	})
}

func (m *machine) drop(t *rapid.T) {
	dead := genID.Draw(t, "dead")
	m.do(t, "", func(o *Op) {
		was := m.looked(o, "")
		old := was.Find(dead)
		o.Drop(&m.q, func(c *Claim) bool { return c.ID == dead })
		now := m.q.Find(dead)
		if lingers := old != nil && old.Lingering; (now != nil) != lingers {
			t.Fatalf("the client of %+v is dead: %+v", old, now)
		}
		if now == nil {
			delete(m.owners, dead)
		}
	})
}

func (m *machine) time(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "how long") == 0 {
		m.now += rapid.Int64Range(0, 2*Keep).Draw(t, "long")
	} else {
		m.now += rapid.Int64Range(0, 150).Draw(t, "short")
	}
}

// use lets every owner that believes to hold alone use spare tokens.
func (m *machine) use(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.owners)) {
		w := m.owners[id]
		if c := m.q.Find(id); w.ends > m.now && c != nil && c.Holding() && c.Expires > m.now {
			w.used = rapid.Int64Range(w.used, w.may(m.now)).Draw(t, "used by "+id)
			m.top = max(m.top, w.used)
		}
	}
	for _, g := range m.ghosts {
		if g.ends > m.now {
			g.used = g.may(m.now)
			if g.used >= g.below {
				t.Fatalf("a broken owner that was not told yet uses token %d, the next holder has %d", g.used, g.below)
			}
		}
	}
}

// forget drops an empty queue as soon as the rules allow it.
func (m *machine) forget(t *rapid.T) {
	if m.q.Disposable(m.now) {
		if len(m.q.Claims) > 0 {
			t.Fatalf("disposable with claims: %+v", m.q)
		}
		m.q = Queue{} // and what it knew of tokens
	}
}
