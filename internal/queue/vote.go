package queue

import "github.com/pawl-go/pawl/driver"

// Vote enters the claim as driver.Node.Vote says, but for the epoch. mark is that
// with which the node was admitted.
//
// Invariant: a claim that holds when Vote returns has a token above mark and no less
// than v.Token, and Last is no less than that: whoever is granted later gets more.
func (o *Op) Vote(q *Queue, v *driver.Vote, mark int64) (driver.State, error) {
	o.Floor = max(v.Floor, mark+1)
	drawn := o.Drawn
	o.Drawn = func(c *Claim) {
		c.Alone = false // its token may be ahead of the clock, by which spare ones are counted
		if drawn != nil {
			drawn(c)
		}
	}
	state, err := o.Enter(q, &v.Claim)
	if err != nil || state != driver.Holding {
		return state, err
	}
	c := q.Find(v.Claim.ID)
	c.Token = max(c.Token, v.Token, mark+1)
	q.Last = max(q.Last, c.Token)
	return state, nil
}

// Withdraw removes the claim if it holds with that token, or waits and token is 0.
// It returns the state that the claim has then.
func (o *Op) Withdraw(q *Queue, id string, token int64) driver.State {
	o.self = id
	o.advance(q)
	c := q.owned(id, "")
	if c == nil {
		return driver.Gone
	}
	if c.Token != token { // while it waits it has none
		return stateOf(c)
	}
	q.remove(id)
	o.grant(q)
	return driver.Gone
}
