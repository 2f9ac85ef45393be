package drivertest

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var inspectTests = []test{
	{name: "Nothing", run: inspectNothing},
	{name: "Content", run: inspectContent},
	{name: "Ages", run: inspectAges, needs: []Feature{Queue}},
	{name: "Units", run: inspectUnits, needs: []Feature{Units}},
}

func inspectNothing(e *env) {
	name := e.name()
	for range 2 {
		if q := e.inspect(e.a, name); q.Name != name || len(q.Claims) != 0 {
			e.Errorf("nobody entered, Inspect shows %+v", q)
		}
	}
}

func inspectContent(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	h.Owner = driver.Owner{Label: `a "label" with ' and \ and 🚚, {[}]`, Host: "host-1.example", PID: 1 << 22}
	w.Owner = driver.Owner{}
	st := e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	q := e.inspect(e.b, name)
	if q.Name != name || q.Limit != 1 {
		e.Errorf("Inspect shows name %q and limit %d", q.Name, q.Limit)
	}
	e.queueIs(name, 1, h, w)
	for i, c := range e.shown(1, h, w) {
		en := q.Claims[i]
		if en.Owner != c.Owner || en.Units != 1 || en.Lingering {
			e.Errorf("claim %+v is shown as %+v", c, en)
		}
		if en.Age < 0 || en.Held < 0 || en.Held > en.Age || en.TTL <= 0 || en.TTL > c.TTL {
			e.Errorf("age %v, held %v, TTL left %v of %v", en.Age, en.Held, en.TTL, c.TTL)
		}
	}
	if q.Claims[0].Token != st.Token || !e.lacks(Queue) && (q.Claims[1].Token != 0 || q.Claims[1].Held != 0) {
		e.Errorf("one holds with token %d, one waits: %+v", st.Token, q.Claims)
	}
}

func inspectAges(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	before := time.Now()
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	entered := time.Now()
	var moved time.Duration
	if e.backing.Advance != nil {
		moved = life / 2
		e.backing.Advance(moved)
	} else {
		time.Sleep(e.short)
	}
	least := moved + time.Since(entered)
	left := e.entry(e.a, w).TTL
	e.leave(e.a, h, driver.Holding)
	granted := time.Now()
	en := e.entry(e.a, w)
	most := moved + time.Since(before)
	// Engines may count in coarse steps, of less than the shortest TTL.
	if en.Age < least-e.h.ShortTTL || en.Age > most+e.h.ShortTTL {
		e.Errorf("entered between %v and %v ago, shown with age %v", least, most, en.Age)
	}
	if en.Held > time.Since(granted)+e.h.ShortTTL+time.Second {
		e.Errorf("granted %v ago, shown as held for %v", time.Since(granted), en.Held)
	}
	if en.TTL > left {
		e.Errorf("%v were left before the grant, %v after", left, en.TTL)
	}
}

func inspectUnits(e *env) {
	name := e.name()
	for _, units := range []int64{1, driver.MaxLimit - 1} {
		c := e.part(name, units, driver.MaxLimit)
		e.enter(e.a, c, driver.Holding)
		if en := e.entry(e.b, c); en.Units != units {
			e.Errorf("%d units are shown as %d", units, en.Units)
		}
	}
	e.enter(e.a, try(e.part(name, 1, driver.MaxLimit)), driver.Refused)
	if q := e.inspect(e.b, name); q.Limit != driver.MaxLimit {
		e.Errorf("limit %d is shown as %d", driver.MaxLimit, q.Limit)
	}
}

var listTests = []test{
	{name: "Prefix", run: listPrefix, needs: []Feature{List}},
	{name: "Content", run: listContent, needs: []Feature{List}},
	{name: "Stop", run: listStop, needs: []Feature{List}},
}

// list returns the names of the queues with that prefix, sorted.
func (e *env) list(s driver.Store, prefix string) []string {
	e.Helper()
	names := []string{}
	for q, err := range s.List(e.ctx, prefix) {
		if err != nil {
			e.Fatalf("List %q: %v", prefix, err)
		}
		if len(q.Claims) == 0 {
			e.Errorf("List yields %q without claims", q.Name)
		}
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return names
}

// A prefix is text, not a pattern.
func listPrefix(e *env) {
	base := e.name()
	for i, s := range []string{"*", "?", "[a-z]", "[", "]", "%", "_", `\`, `\*`, "'", `"`, "''; --", "^", "$", "é", "A", "a", "b/", "b:", " "} {
		prefix := base + "/" + s
		var want []string
		for _, tail := range []string{"", "x", "/1", s} {
			want = append(want, prefix+tail)
			e.enter([]driver.Store{e.a, e.b}[i%2], e.claim(prefix+tail), driver.Holding)
		}
		decoy := base + "/" + "decoy" + s // what a pattern might match too
		e.enter(e.a, e.claim(decoy), driver.Holding)
		slices.Sort(want)
		// Some of these are prefixes of others in the list, so look each up at once.
		var got []string
		for _, name := range e.list(e.b, prefix) {
			if slices.Contains(want, name) || len(name) < len(prefix) || name[:len(prefix)] != prefix {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			e.Errorf("List %q yields %q, want %q", prefix, got, want)
		}
	}
}

func listContent(e *env) {
	base := e.name()
	gone, h, w := e.claim(base+"/gone"), e.claim(base+"/held"), e.claim(base+"/held")
	brief := e.brief(e.claim(base + "/brief"))
	e.enter(e.a, gone, driver.Holding)
	e.leave(e.a, gone, driver.Holding)
	e.enter(e.a, brief, driver.Holding)
	e.expire()
	st := e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.eventually("what has run out is not listed", func() bool {
		return slices.Equal(e.list(e.b, base), []string{h.Name})
	})
	for q, err := range e.b.List(e.ctx, base) {
		if err != nil {
			e.Fatal(err)
		}
		if q.Limit != 1 || len(q.Claims) != len(e.shown(1, h, w)) || q.Claims[0].ID != h.ID ||
			q.Claims[0].State != driver.Holding || q.Claims[0].Token != st.Token || q.Claims[0].Owner != h.Owner {
			e.Errorf("List yields %+v", q)
		} else if !e.lacks(Queue) && (q.Claims[1].ID != w.ID ||
			q.Claims[1].State != driver.Waiting || q.Claims[1].TTL > w.TTL || q.Claims[1].TTL <= 0) {
			e.Errorf("List yields %+v", q)
		}
	}
	if got := e.list(e.a, base+"/none"); len(got) != 0 {
		e.Errorf("List of what is not there yields %q", got)
	}
	if got := e.list(e.a, ""); !slices.Contains(got, h.Name) {
		e.Errorf("List of all does not yield %q", h.Name)
	}
}

func listStop(e *env) {
	base := e.name()
	for range 3 {
		e.enter(e.a, e.claim(base+e.name()), driver.Holding)
	}
	for range e.a.List(e.ctx, base) {
		break
	}
	if got := e.list(e.a, base); len(got) != 3 {
		e.Errorf("List yields %d queues, want 3", len(got))
	}
}

var breakTests = []test{
	{name: "Nothing", run: breakNothing, needs: []Feature{Break}},
	{name: "Holder", run: breakHolder, needs: []Feature{Break}},
	{name: "AllHolders", run: breakAll, needs: []Feature{Break, Units}},
	{name: "Lingering", run: breakLingering, needs: []Feature{Break, Linger}},
}

func (e *env) breakUp(s driver.Store, name string) []driver.Entry {
	e.Helper()
	broken, err := s.Break(e.ctx, name)
	if err != nil {
		e.Fatalf("Break: %v", err)
	}
	return broken
}

func breakNothing(e *env) {
	name := e.name()
	if broken := e.breakUp(e.a, name); len(broken) != 0 {
		e.Errorf("nobody holds, Break returns %+v", broken)
	}
	e.queueIs(name, 0)
}

func breakHolder(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	h.Owner.Label = "stuck"
	st := e.enter(e.a, h, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	woken := e.await(e.a, w)
	broken := e.breakUp(e.b, name)
	if len(broken) != 1 {
		e.Fatalf("one holds, Break returns %+v", broken)
	}
	if b := broken[0]; b.ID != h.ID || b.State != driver.Holding || b.Token != st.Token || b.Owner != h.Owner || b.Units != 1 {
		e.Errorf("Break returns %+v for claim %+v with token %d", b, h, st.Token)
	}
	got := soon(e, woken, "a waiting claim is let in")
	if got.err != nil || got.st.State != driver.Holding {
		e.Fatalf("the waiting claim: %v, %v", got.st.State, got.err)
	}
	if got.st.Token <= st.Token {
		e.Errorf("token %d after the broken %d", got.st.Token, st.Token)
	}
	e.renew(e.a, h, driver.Gone)
	e.leave(e.a, h, driver.Gone)
	e.queueIs(name, 1, w)
}

func breakAll(e *env) {
	name := e.name()
	h1, h2, big, late := e.part(name, 1, 3), e.part(name, 2, 3), e.part(name, 3, 3), e.part(name, 1, 3)
	e.enter(e.a, h1, driver.Holding)
	e.enter(e.b, h2, driver.Holding)
	e.enter(e.a, big, driver.Waiting)
	e.enter(e.b, late, driver.Waiting)
	if broken := e.breakUp(e.a, name); len(broken) != 2 || broken[0].ID != h1.ID || broken[1].ID != h2.ID {
		e.Errorf("two hold, Break returns %+v", broken)
	}
	e.queueIs(name, 1, big, late)
}

func breakLingering(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.linger(e.a, h, life)
	e.enter(e.b, w, driver.Waiting)
	if broken := e.breakUp(e.b, name); len(broken) != 1 || !broken[0].Lingering {
		e.Errorf("one lingers, Break returns %+v", broken)
	}
	if e.lacks(Queue) {
		e.granted(e.b, w)
	}
	e.queueIs(name, 1, w)
}
