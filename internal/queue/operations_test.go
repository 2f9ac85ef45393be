package queue

import (
	"errors"
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
	c := Claim{ID: genID.Draw(t, "id"), Units: rapid.Int64Range(1, limit).Draw(t, "units"), Overtake: rapid.IntRange(0, 4).Draw(t, "overtake") == 0}
	if rapid.Bool().Draw(t, "all") {
		c.Units = limit
	}
	c.Session, c.Owner = "session of "+c.ID, driver.Owner{Label: `"it"`, Host: "here", PID: 7}
	ttl, try := genTTL.Draw(t, "ttl"), rapid.Bool().Draw(t, "try")
	m.do(t, c.ID, func(o *Op) {
		was := m.looked(o, c.ID)
		old := was.Find(c.ID)
		plain, tried := clone(m.q), clone(m.q)
		p := Op{Now: m.now, Reachable: o.Reachable}
		wouldBe, _ := p.Enter(&plain, c, limit, ttl, false)
		p = Op{Now: m.now, Reachable: o.Reachable}
		triedTo, _ := p.Enter(&tried, c, limit, ttl, true)
		if (wouldBe == driver.Holding) != (triedTo == driver.Holding) {
			t.Fatalf("Enter answers %v, to try %v", wouldBe, triedTo)
		}

		st, err := o.Enter(&m.q, c, limit, ttl, try)
		now := m.q.Find(c.ID)
		var le *driver.LimitError
		switch {
		case old != nil && old.Lingering:
			if st != driver.Gone || err != nil || *now != *old {
				t.Fatalf("Enter of a lingering claim: %v, %v, %+v", st, err, now)
			}
			return
		case old != nil:
			want := *old
			want.Expires = max(old.Expires, m.now+ttl)
			if st != stateOf(old) || err != nil || *now != want {
				t.Fatalf("repeated Enter of %+v: %v, %v, %+v", old, st, err, now)
			}
		case was.InUse() && was.Limit >= c.Units && was.Limit != limit && was.Declared != limit || was.InUse() && was.Limit < c.Units:
			if !errors.As(err, &le) || le.Have != was.Limit || le.Want != limit || le.Units != 0 && le.Units != c.Units || st != driver.Gone || now != nil {
				t.Fatalf("Enter with limit %d where it is %d: %v, %v", limit, was.Limit, st, err)
			}
			return
		case st == driver.Refused:
			if !try || err != nil || now != nil {
				t.Fatalf("refused: try is %v, error %v, %+v", try, err, now)
			}
			return
		default:
			if err != nil || now == nil || st != stateOf(now) || now.Expires != m.now+ttl || now.Arrived != m.now ||
				now.Units != c.Units || m.q.Limit != limit && m.q.Declared != limit || try && st != driver.Holding {
				t.Fatalf("Enter %+v of %d: %v, %v, %+v", c, limit, st, err, now)
			}
		}
		m.extend(now)
		again := clone(m.q)
		p = Op{Now: m.now, Reachable: o.Reachable}
		if s2, err := p.Enter(&again, c, limit, ttl, try); s2 != st || err != nil || !same(again, m.q) {
			t.Fatalf("Enter answered %v, its repetition %v, %v, and made of %+v\n%+v", st, s2, err, m.q, again)
		}
	})
}

func (m *machine) renew(t *rapid.T) {
	id, ttl := genID.Draw(t, "id"), genTTL.Draw(t, "ttl")
	used := m.says(t, id)
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Renew(&m.q, id, ttl, used)
		now := m.q.Find(id)
		if old == nil || old.Lingering {
			if st != driver.Gone || (now == nil) != (old == nil) || now != nil && *now != *old {
				t.Fatalf("Renew of %+v: %v, %+v", old, st, now)
			}
			return
		}
		if st != stateOf(old) || now.Expires != max(old.Expires, m.now+ttl) || now.Holding() && now.Used < used {
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

// says answers what a claim's owner says of its used tokens: the truth or
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
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Leave(&m.q, id, used, linger)
		now := m.q.Find(id)
		switch {
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
		delete(m.owners, id)
		after := clone(m.q)
		if p := (Op{Now: m.now, Reachable: o.Reachable}); p.Leave(&after, id, used, linger) != driver.Gone && now == nil || !same(after, m.q) {
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
	m.do(t, id, func(o *Op) {
		was := m.looked(o, id)
		old := was.Find(id)
		st := o.Resize(&m.q, id, units, used)
		now := m.q.Find(id)
		switch {
		case old == nil || old.Lingering:
			if st != driver.Gone {
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
	m.do(t, "", func(o *Op) {
		old := m.looked(o, "")
		declared := old.Declared
		switch {
		case !old.InUse():
			declared = was
		case declared == 0:
			declared = old.Limit
		}
		err := o.SetLimit(&m.q, was, limit)
		if old.InUse() && was != old.Limit && was != declared {
			var le *driver.LimitError
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
