//go:build unix

package synchronizers

import "time"

// giveWay holds until another one wants to.
func (w *worker) giveWay() error {
	for !w.stop() {
		l, err := w.client.Mutex("yield").Lock(w)
		if err != nil {
			return err
		}
		w.reign(0, l, func() bool {
			select {
			case <-l.YieldRequested():
				return true
			default:
				return w.stop()
			}
		})
		if err := l.Unlock(w); err != nil {
			w.note("lost", err)
		}
	}
	return nil
}

// 3 processes would hold for ever, and give way to each other: they take turns.
// Some are killed while they hold; the last one gives way when it is asked to.
func testGivingWay(c *crowd) {
	const members, turns = 3, 9
	for range members {
		c.start("giveway")
	}
	c.eventually(func() bool { return c.noted("leads") == members }, "not all get their turn")
	before := len(c.terms(0))
	c.eventually(func() bool { return len(c.terms(0)) > before+turns }, "they do not take turns")
	all := c.terms(0)[before:]
	for i := members; i < len(all); i++ {
		// In the last few turns each of the others has begun to wait. Only one that
		// stood still for a TTL since then has lost its place.
		if all[i].worker == all[i-1].worker && all[i].from-all[i-members].from < c.ttl {
			c.Errorf("%d held again, and others waited: %+v after %+v", all[i].worker, *all[i], *all[i-1])
		}
	}
	for range members - 1 {
		var victim int
		before := len(c.terms(0))
		c.eventually(func() (ok bool) { victim, ok = c.reigns(0, before); return ok }, "nobody holds after a kill")
		c.kill(victim)
	}
	c.eventually(func() bool {
		_, ok := c.reigns(0, 0)
		return ok && c.claims("yield") == 1
	}, "the last one does not hold alone")
	alone := len(c.terms(0))
	var asked time.Time
	c.eventually(func() bool {
		if time.Since(asked) > 5*time.Second { // it is a hint, and may be lost
			if err := c.client.RequestYield(c.Context(), "yield"); err != nil {
				c.Log(err)
			} else {
				asked = time.Now()
			}
		}
		return len(c.terms(0)) > alone
	}, "asked, the last one does not give way")
	c.write("stop", "")
	c.end()
	all = c.terms(0)
	c.checkTerms(all)
	c.checkKills(all)
	c.Logf("%d turns", len(all))
	c.free("yield")
}
