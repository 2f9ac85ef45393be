package pawl

import (
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Readers of one process share a claim. Each has a tenure of its own on it, so
// that MaxHold, contexts and errors are its own; the claim leaves the store
// with the last of them. Who comes later joins them, until somebody waits in
// the store: then it waits in the cohort's next claim, which stands behind that
// one in the queue. So a cohort of readers may have several claims that hold.

// shared tells whether those who want the lock can hold one claim together.
func (k *cohortKey) shared() bool { return k.kind == driver.KindRW && k.units < k.limit }

// reads tells whether the claim leaves room for readers.
func (cl *claim) reads() bool { return cl.co.key.kind == driver.KindRW && cl.units < cl.co.key.limit }

// open tells whether readers may join those who hold the claim. Such that wait
// in the store are passed by those that overtake, no less than there.
func (cl *claim) open() bool {
	k := &cl.co.key
	return k.shared() && cl.state == holding && cl.units == k.units && !cl.resizing &&
		(!cl.wanted || k.overtake) && !cl.shown && cl.ttl == k.ttl
}

// admit lets the readers who wait join those of the present claim, and reports
// whether it did.
func (co *cohort) admit() bool {
	cl := co.claim
	if cl == nil || !cl.open() || co.waiters.Len() == 0 {
		return false
	}
	now := time.Now()
	if cl.ranOut(now, co.core.keeper.sleptBy(now)) || !cl.ample(now) {
		return false
	}
	co.share(cl)
	co.trim()
	return true
}

// share gives all who wait a tenure on the claim.
func (co *cohort) share(cl *claim) {
	now := time.Now()
	limited := false
	for w := co.front(); w != nil; w = co.front() {
		t := cl.serve(w.opts, cl.token, now)
		if cl.wanted {
			t.press()
		}
		limited = limited || w.opts.MaxHold > 0
		co.serve(w, t, nil)
	}
	if limited {
		co.core.keeper.watch(cl)
	}
}

// makeWay puts a claim that was granted in the place of the present one, if it
// was the next.
//
// Invariant: claims of a cohort that hold at the same time fit beside each
// other. One that does not, the engine no longer knows.
func (co *cohort) makeWay(cl *claim) {
	for _, other := range append(slices.Clone(co.older), co.claim) {
		if other != cl && other.state == holding && other.units+cl.units > co.key.limit {
			co.lose(other, errors.New("the engine gave the lock to the next claim"))
		}
	}
	if cl == co.next {
		co.older = append(co.older, co.claim)
		co.claim, co.next = cl, nil
	}
}

// busy tells whether who comes now would have to wait, as far as is known.
func (co *cohort) busy() bool {
	if co.key.shared() && co.claim.state == holding {
		return co.next != nil && co.next.state == waiting
	}
	return co.claim.state != entering
}

// onlyTried tells whether nobody here would wait for a claim.
func (co *cohort) onlyTried() bool {
	for e := co.waiters.Front(); e != nil; e = e.Next() {
		if !e.Value.(*waiter).try {
			return false
		}
	}
	return true
}

// only tells whether nobody else holds the tenure's claim.
func (t *tenure) only() bool { return t.prev == nil && t.next == nil }

// part ends a tenure with err whose claim others hold too; false if it is the
// only one.
func (cl *claim) part(t *tenure, err error) bool {
	if t.only() {
		return false
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		cl.tenure = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	t.finish(err)
	return true
}

// press notes for all tenures of the claim that others want it.
func (cl *claim) press() {
	for t := cl.tenure; t != nil; t = t.next {
		t.press()
	}
}

// rival tells the other claims that this client has of an RWMutex that one of
// its claims waits in the store now: readers must not go on joining each other
// past a writer of their own process, where no store tells them. The cohort's
// mutex is held, so it is done elsewhere.
func (c *core) rival(co *cohort) {
	c.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(c.rivals[co.key.name]), func(o *cohort) bool { return o == co })
	c.mu.Unlock()
	if len(others) == 0 {
		return
	}
	c.spawn(func() {
		for _, o := range others {
			o.rivalled()
		}
	})
}

func (co *cohort) rivalled() {
	co.mu.Lock()
	defer co.mu.Unlock()
	for _, cl := range append(slices.Clone(co.older), co.claim) {
		switch {
		case cl == nil:
		case cl.state == holding:
			cl.rivalled()
		case cl.state == entering:
			cl.wanted = true // the reply may be from before
		}
	}
	co.plan()
}

// noRival forgets a cohort. The core's mutex is held.
func (c *core) noRival(co *cohort) {
	name := co.key.name
	c.rivals[name] = slices.DeleteFunc(c.rivals[name], func(o *cohort) bool { return o == co })
	if len(c.rivals[name]) == 0 {
		delete(c.rivals, name)
	}
}
