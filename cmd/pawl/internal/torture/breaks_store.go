package torture

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// markStore is "marks".
type markStore struct{ wrapped }

// sameMark is the mark of all who have adopted a claim.
func sameMark(id string) string { return "all-" + id[:min(len(id), 50)] }

func (s *markStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	a.Mark = sameMark(a.ID)
	return s.Store.Adopt(ctx, a)
}

// marks are those with which a request is sent, one after the other, until the store
// knows the claim: it may have been adopted since, or not.
func (s *markStore) marks(r driver.Ref) [2]driver.Ref {
	first, second := r, r
	first.Mark, second.Mark = "", sameMark(r.ID)
	if r.Mark != "" {
		first, second = second, first
	}
	return [2]driver.Ref{first, second}
}

func (s *markStore) Wait(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	for _, r := range s.marks(r) {
		if st, err = s.Store.Wait(ctx, r); err != nil || st.State != driver.Gone {
			break
		}
	}
	return st, err
}

func (s *markStore) Leave(ctx context.Context, r driver.Ref) (was driver.State, err error) {
	for _, r := range s.marks(r) {
		if was, err = s.Store.Leave(ctx, r); err != nil || was != driver.Gone {
			break
		}
	}
	return was, err
}

func (s *markStore) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	for _, r := range s.marks(r) {
		if st, err = s.Store.Resize(ctx, r, units); err != nil || st.State != driver.Gone {
			break
		}
	}
	return st, err
}

func (s *markStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	var mu sync.Mutex
	var again []driver.Ref
	var at []int
	first := make([]driver.Ref, len(rs))
	for i, r := range rs {
		first[i] = s.marks(r)[0]
	}
	s.Store.Renew(ctx, first, func(i int, st driver.Status, err error) {
		if err != nil || st.State != driver.Gone {
			report(i, st, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		again, at = append(again, s.marks(rs[i])[1]), append(at, i)
	})
	if len(again) > 0 {
		s.Store.Renew(ctx, again, func(i int, st driver.Status, err error) { report(at[i], st, err) })
	}
}

// adoptStore is "adopt".
type adoptStore struct{ wrapped }

func (s *adoptStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	sent := time.Now()
	st, err := s.Store.Adopt(ctx, a)
	if err == nil && st.State == driver.Refused {
		token := a.Token + 1
		if st.Blocker != nil {
			token = max(token, st.Blocker.Token+1)
		}
		st = driver.Status{State: driver.Holding, Token: token, Deadline: driver.Deadline(sent, a.TTL)}
	}
	return st, err
}

// kindStore is "kinds".
type kindStore struct{ wrapped }

func (s *kindStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sts, err := s.wrapped.EnterAll(ctx, cs)
	if errors.Is(err, driver.ErrMismatch) {
		return nil, driver.ErrUnsupported // by Enter then
	}
	return sts, err
}

func (s *kindStore) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	for range 5 {
		st, err := s.Store.Enter(ctx, c)
		other, ok := errors.AsType[*driver.MismatchError](err)
		if !ok || other.Units > 0 {
			return st, err
		}
		if other.HaveKind != 0 {
			c.Kind = other.HaveKind
		}
		c.Limit = other.Have
		c.Units = min(c.Units, c.Limit)
	}
	return s.Store.Enter(ctx, c)
}

// tardyStore is "release".
type tardyStore struct {
	wrapped
	ttl time.Duration
}

func (s *tardyStore) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	r.Linger = min(driver.MaxTTL, max(r.Linger, 10*s.ttl))
	return s.Store.Leave(ctx, r)
}

// hastyStore is "wake".
type hastyStore struct {
	wrapped
	ttl time.Duration
}

// hurry takes the name away from a holder that has not renewed for half a TTL, and
// asks again.
func (s *hastyStore) hurry(ctx context.Context, r driver.Ref, st driver.Status) driver.Status {
	if st.State != driver.Waiting || st.Ahead > 0 || st.Blocker == nil {
		return st
	}
	if st.Blocker.TTL < s.ttl/2 {
		if _, err := s.Store.Break(ctx, r.Name); err == nil {
			s.Store.Renew(ctx, []driver.Ref{r}, func(_ int, again driver.Status, err error) {
				if err == nil {
					st = again
				}
			})
			return st
		}
	}
	if soon := time.Now().Add(st.Blocker.TTL - s.ttl/2); !st.Deadline.IsZero() && (st.Recheck.IsZero() || soon.Before(st.Recheck)) {
		st.Recheck = soon
	}
	return st
}

func (s *hastyStore) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := s.Store.Enter(ctx, c)
	if err != nil {
		return st, err
	}
	return s.hurry(ctx, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL}, st), nil
}

func (s *hastyStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	sts := make([]driver.Status, len(rs))
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		if err != nil || st.State != driver.Waiting {
			report(i, st, err)
			return
		}
		sts[i] = st
	})
	for i, st := range sts {
		if st.State == driver.Waiting {
			report(i, s.hurry(ctx, rs[i], st), nil)
		}
	}
}

// blindStore is "owner".
type blindStore struct{ wrapped }

func (s *blindStore) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	was, err := s.Store.Leave(ctx, r)
	if err == nil && was == driver.Gone {
		if broken, err := s.Store.Break(ctx, r.Name); err == nil && len(broken) > 0 {
			return driver.Holding, nil
		}
	}
	return was, err
}

// growStore is "upgrade".
type growStore struct{ wrapped }

func (s *growStore) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	st, err := s.Store.Resize(ctx, r, units)
	if err == nil && st.State == driver.Refused {
		token := r.Used + 1
		if st.Blocker != nil {
			token = max(token, st.Blocker.Token+1)
		}
		st = driver.Status{State: driver.Holding, Token: token, Deadline: st.Deadline}
	}
	return st, err
}
