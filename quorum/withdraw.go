package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// stepBack lets a claim wait at the node keep, or be nowhere (-1): it withdraws what the nodes
// behind that have granted, and waits a moment for it.
func (s *store) stepBack(cl *claim, keep int) {
	var done sync.WaitGroup
	cl.mu.Lock()
	wait := s.withdrawAll(cl, keep, &done)
	cl.mu.Unlock()
	if wait == 0 {
		return
	}
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-all:
	case <-t.C:
	}
}

// withdrawAll is stepBack without waiting: it returns how long that is worth it. cl.mu is held.
func (s *store) withdrawAll(cl *claim, keep int, done *sync.WaitGroup) (wait time.Duration) {
	cl.wanted, cl.token = false, 0
	if keep < 0 {
		cl.primary = -1
	}
	for i := range cl.seats {
		switch seat := &cl.seats[i]; {
		case keep >= 0 && cl.rank(i) <= cl.rank(keep):
		case seat.state != driver.Gone:
			wait = max(wait, s.nodes[i].patience())
			s.withdraw(cl, i, done)
		case seat.unsure:
			s.withdraw(cl, i, nil)
		}
	}
	return wait
}

// withdraw takes back what a node has granted, or lets the claim leave its queue. cl.mu is
// held.
//
// Invariant: from now on what holds there with this token does not count; a later
// grant has a greater one. The node removes only what has this token. So however late this
// request comes, and how often, it removes nothing that counts.
func (s *store) withdraw(cl *claim, i int, done *sync.WaitGroup) {
	seat, n, token := &cl.seats[i], s.nodes[i], int64(0)
	if seat.state == driver.Holding {
		token = seat.token
		seat.void = max(seat.void, token)
	}
	seat.state, seat.until, seat.unsure = driver.Gone, time.Time{}, false
	ends := time.Now().Add(cl.TTL)
	if done != nil {
		done.Add(1)
	}
	if !s.Spawn(func() {
		s.repeat(ends, func() error { return s.takeBack(cl, n, &token) }, done)
	}) && done != nil {
		done.Done()
	}
}

// takeBack is one attempt of withdraw. If the claim is at the node by a vote whose reply
// was lost, or was granted there unseen, and is not wanted there, it finds out the token of
// that.
func (s *store) takeBack(cl *claim, n *node, token *int64) error {
	for {
		is, err := request(s, n, func(ctx context.Context) (driver.State, error) {
			return n.Withdraw(ctx, cl.Name, cl.ID, *token)
		})
		if err != nil || is == driver.Gone {
			return err
		}
		there, err := request(s, n, func(ctx context.Context) (st driver.Status, err error) {
			// What it has is more, mostly, and then it is not prolonged.
			r := driver.Ref{Name: cl.Name, ID: cl.ID, TTL: driver.MinTTL}
			n.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) { st, err = got, e })
			return st, err
		})
		if err != nil {
			return err
		}
		cl.mu.Lock()
		kept := cl.left || cl.wants(n.index)
		if seat := &cl.seats[n.index]; !kept && there.State == driver.Holding {
			seat.void = max(seat.void, there.Token)
		}
		cl.mu.Unlock()
		if kept || there.State == driver.Gone {
			return nil
		}
		*token = there.Token
	}
}

// repeat calls f until it succeeds, or the claim has run out at the node. done is told after
// the first time.
func (s *store) repeat(ends time.Time, f func() error, done *sync.WaitGroup) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f()
		if done != nil {
			done.Done()
			done = nil
		}
		if err == nil || driver.IsPermanent(err) || time.Now().Add(pause).After(ends) || !s.pause(about(pause)) {
			return
		}
	}
}
