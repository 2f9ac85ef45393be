package handle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// A request that got no reply is given up after a while, and repeated.
const (
	oneTry  = 2 * time.Second
	between = 100 * time.Millisecond
)

// again calls f until it has a reply, an error that repeating cannot mend, or no more
// time.
func again(ctx context.Context, f func(ctx context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, oneTry)
		err := f(one)
		cancel()
		if err == nil || driver.IsPermanent(err) {
			return err
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return err
		}
	}
}

// CanAdopt returns an error that is driver.ErrUnsupported if nobody can own a claim of
// this store by a handle, or what the store said otherwise. It changes nothing.
func CanAdopt(ctx context.Context, s driver.Store, name string) error {
	_, err := s.Adopt(ctx, driver.Adoption{
		Name: name, ID: driver.NewID(), Mark: driver.NewID(), Kind: driver.KindMutex, Units: 1, Token: 1, TTL: driver.MinTTL,
	})
	if errors.Is(err, driver.ErrMismatch) { // it has looked for the claim
		return nil
	}
	return err
}

// Adopt makes the claim that h names belong to a new handle, for ttl: h, and the
// process that has renewed it until now, have it no longer. It is pawl.ErrLost
// if the claim is over, or another's by now.
//
// With stays the claim is no process's: it lives for its TTL whatever becomes of this
// one. Else an engine may end it with the Store.
func Adopt(ctx context.Context, s driver.Store, h *Handle, owner driver.Owner, ttl time.Duration, stays bool) (*Handle, error) {
	a := driver.Adoption{Name: h.Name, ID: h.ID, Token: h.Token, Mark: driver.NewID(), TTL: ttl, Owner: owner}
	to := &Handle{h.Name, h.ID, 0, h.Units, a.Mark, ttl}
	err := again(ctx, func(ctx context.Context) error { return find(ctx, s, &a) })
	if err != nil {
		return nil, err
	}
	var st driver.Status
	err = again(ctx, func(ctx context.Context) (err error) {
		st, err = s.Adopt(ctx, a)
		return err
	})
	switch {
	case err != nil:
		to.drop(s)
		return nil, err
	case st.State != driver.Holding:
		return nil, h.lost()
	}
	to.Token = st.Token
	if stays {
		if _, err := to.Renew(ctx, s, ttl); err != nil {
			to.drop(s)
			return nil, err
		}
	}
	return to, nil
}

// find looks up what an adoption must know of the claim.
func find(ctx context.Context, s driver.Store, a *driver.Adoption) error {
	q, err := s.Inspect(ctx, a.Name)
	if err != nil {
		return err
	}
	switch q.Kind {
	case 0, driver.KindMutex, driver.KindRW, driver.KindSemaphore:
	default:
		return fmt.Errorf("%q is in use as %s: %w: only locks and permits are passed on", a.Name, q.Kind, driver.ErrInvalid)
	}
	for _, e := range q.Claims {
		if e.ID == a.ID && e.State == driver.Holding && !e.Lingering {
			a.Kind, a.Units = q.Kind, e.Units
			return nil
		}
	}
	return driver.Permanent((&Handle{Name: a.Name, ID: a.ID}).lost())
}

// drop gives back what an adoption without a reply may have got.
func (h *Handle) drop(s driver.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.Leave(ctx, driver.Ref{Name: h.Name, ID: h.ID, Mark: h.Mark}) // else it runs out
}

func (h *Handle) lost() error {
	return fmt.Errorf("%q, claim %s: %w: it was released, taken away, passed on, or not renewed in time", h.Name, h.ID, pawl.ErrLost)
}

// Renew has the claim live for ttl from now, or leaves it what it has if that is more,
// and returns when it ends. It is no process's from then on. It is pawl.ErrLost if the
// claim is over, or another's by now.
func (h *Handle) Renew(ctx context.Context, s driver.Store, ttl time.Duration) (ends time.Time, err error) {
	err = again(ctx, func(ctx context.Context) error {
		ends, err = h.renew(ctx, s, ttl, true)
		return err
	})
	return ends, err
}

// Look is Renew where the store lets nobody else renew what a process keeps: it asks
// whether the claim is held, and when it ends.
func (h *Handle) Look(ctx context.Context, s driver.Store) (ends time.Time, err error) {
	err = again(ctx, func(ctx context.Context) error {
		sent := time.Now()
		q, err := s.Inspect(ctx, h.Name)
		if err != nil {
			return err
		}
		for _, e := range q.Claims {
			// Who has adopted it since has a greater token.
			if e.ID == h.ID && e.State == driver.Holding && !e.Lingering && e.Token == h.Token {
				ends = sent.Add(e.TTL)
				return nil
			}
		}
		return driver.Permanent(h.lost())
	})
	return ends, err
}

// Keep is Renew by the process that keeps the claim for the one that it belongs to,
// once.
func (h *Handle) Keep(ctx context.Context, s driver.Store) error {
	_, err := h.renew(ctx, s, h.TTL, false)
	return err
}

func (h *Handle) renew(ctx context.Context, s driver.Store, ttl time.Duration, stays bool) (time.Time, error) {
	r := driver.Ref{Name: h.Name, ID: h.ID, Mark: h.Mark, TTL: ttl}
	if stays {
		r.HandOver = 1
	}
	var st driver.Status
	err := driver.ErrClosed
	s.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) { st, err = got, e })
	if err == nil && st.State != driver.Holding {
		err = driver.Permanent(h.lost())
	}
	return st.Deadline, err
}

// Unlock gives the claim back. It is pawl.ErrLost if it was over before, or
// another's.
func (h *Handle) Unlock(ctx context.Context, s driver.Store) error {
	unanswered := false
	return again(ctx, func(ctx context.Context) error {
		was, err := s.Leave(ctx, driver.Ref{Name: h.Name, ID: h.ID, Mark: h.Mark})
		switch {
		case err != nil:
			unanswered = true
			return err
		case was != driver.Holding && !unanswered:
			return driver.Permanent(h.lost())
		}
		return nil
	})
}
