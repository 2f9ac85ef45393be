package torture

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// stage is where a break is shown: two clients of one store.
type stage struct {
	*testing.T
	store  *memstore.Store
	net    *faultstore.Store // of the first client
	stores [2]driver.Store
	a, b   *pawl.Client
}

const stageTTL = time.Second

func setStage(t *testing.T, how string) *stage {
	s := &stage{T: t, store: memstore.New()}
	s.net = &faultstore.Store{Store: s.store}
	s.stores = [2]driver.Store{s.net, s.store}
	for i := range s.stores {
		if how == "" {
			continue
		}
		var err error
		if s.stores[i], err = broken(s.stores[i], how, stageTTL); err != nil {
			t.Fatal(err)
		}
	}
	s.a = pawl.New(s.stores[0], &pawl.Options{TTL: stageTTL})
	s.b = pawl.New(s.stores[1], &pawl.Options{TTL: stageTTL})
	t.Cleanup(func() {
		s.net.Set(func() { s.net.Down = false })
		s.a.Close(context.Background())
		s.b.Close(context.Background())
		s.store.Close()
	})
	return s
}

func (s *stage) lock(c *pawl.Client) *pawl.Lease {
	s.Helper()
	l, err := c.Mutex("x").Lock(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// enter enters a claim of a mutex.
func (s *stage) enter(store driver.Store) driver.Ref {
	s.Helper()
	c := driver.Claim{Name: "x", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: stageTTL}
	if st, err := store.Enter(s.Context(), c); err != nil || st.State != driver.Holding {
		s.Fatalf("it is %v, %v", st.State, err)
	}
	return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL}
}

// wrongs say for each break whether the wrong comes to pass that it is to bring.
var wrongs = map[string]func(s *stage) bool{
	"margin": func(s *stage) bool { // two hold when one of them hears nothing
		first := s.lock(s.a)
		s.net.Set(func() { s.net.Down = true })
		s.lock(s.b)
		return first.Err() == nil
	},
	"renewals": func(s *stage) bool {
		first := s.lock(s.a)
		time.Sleep(3 * stageTTL)
		_, err := s.b.Mutex("x").TryLock(s.Context())
		return err == nil && first.Err() == nil
	},
	"tokens": func(s *stage) bool {
		first, last := s.lock(s.a), int64(0)
		token := first.Token()
		if err := first.Unlock(s.Context()); err != nil {
			s.Error(err)
		}
		handle, err := s.lock(s.b).HandOver(s.Context())
		if err != nil {
			s.Error(err)
		}
		adopted, err := s.a.Mutex("x").Adopt(s.Context(), handle)
		if err != nil {
			s.Error(err)
		} else if last = adopted.Token(); last <= token {
			s.Errorf("token %d after %d in one process", last, token)
		}
		next, err := adopted.HandOver(s.Context())
		if err != nil {
			s.Error(err)
		}
		adopted, err = s.b.Mutex("x").Adopt(s.Context(), next)
		if err != nil {
			s.Error(err)
		}
		return adopted.Token() <= last
	},
	"marks": adoptTwice,
	"adopt": adoptTwice,
	"kinds": func(s *stage) bool {
		permit, err := s.a.Semaphore("x", 2).Acquire(s.Context(), 1)
		if err != nil {
			s.Error(err)
		}
		_, err = s.b.Mutex("x").TryLock(s.Context())
		return err == nil && permit.Err() == nil
	},
	"release": func(s *stage) bool {
		if err := s.lock(s.a).Unlock(s.Context()); err != nil {
			s.Error(err)
		}
		time.Sleep(5 * stageTTL)
		_, err := s.b.Mutex("x").TryLock(s.Context())
		return errors.Is(err, pawl.ErrHeld)
	},
	"wake": func(s *stage) bool {
		first := s.lock(s.a)
		s.net.Set(func() { s.net.Down = true })
		s.lock(s.b)
		return first.Err() == nil
	},
	"owner": func(s *stage) bool {
		first := s.enter(s.stores[0])
		if _, err := s.store.Break(s.Context(), "x"); err != nil {
			s.Error(err)
		}
		s.enter(s.stores[1])
		if _, err := s.stores[0].Leave(s.Context(), first); err != nil {
			s.Error(err)
		}
		q, err := s.store.Inspect(s.Context(), "x")
		return err == nil && len(q.Claims) == 0
	},
	"upgrade": func(s *stage) bool {
		first, err := s.a.RWMutex("x").RLock(s.Context())
		if err != nil {
			s.Error(err)
		}
		second, err := s.b.RWMutex("x").RLock(s.Context())
		if err != nil {
			s.Error(err)
		}
		return second.TryUpgrade(s.Context()) == nil && first.Err() == nil
	},
}

// adoptTwice tells whether two get what was handed over once.
func adoptTwice(s *stage) bool {
	handle, err := s.lock(s.a).HandOver(s.Context())
	if err != nil {
		s.Error(err)
	}
	first, err := s.b.Mutex("x").Adopt(s.Context(), handle)
	if err != nil {
		s.Error(err)
	}
	second, err := s.a.Mutex("x").Adopt(s.Context(), handle)
	return err == nil && first.Err() == nil && second.Err() == nil
}

// Each break makes pawl wrong in the way it says, which is right without it.
func TestBreaks(t *testing.T) {
	for _, how := range AllBreaks {
		t.Run(how, func(t *testing.T) {
			if BreakText(how) == "" || wrongs[how] == nil {
				t.Fatal("nothing says what is wrong")
			}
			for _, how := range []string{how, ""} {
				bubble.Test(t, func(t *testing.T) {
					if wrong := wrongs[strings.TrimPrefix(t.Name(), "TestBreaks/")](setStage(t, how)); wrong != (how != "") {
						t.Errorf("break %q: wrong is %v", how, wrong)
					}
				})
			}
		})
	}
}

// What a break does not concern works as ever.
func TestBreaksPlain(t *testing.T) {
	for _, how := range append(AllBreaks, "") {
		if how == "release" {
			continue // nothing is freed
		}
		bubble.Test(t, func(t *testing.T) {
			s := setStage(t, how)
			for i := range 10 {
				c := []*pawl.Client{s.a, s.b}[i%2]
				set, err := c.LockAll(t.Context(), "x", "y")
				if err != nil {
					t.Fatalf("break %q: %v", how, err)
				}
				if how != "renewals" {
					time.Sleep(stageTTL * 5 / 4)
				}
				if err := set.Unlock(t.Context()); err != nil {
					t.Errorf("break %q: %v", how, err)
				}
			}
		})
	}
}

func TestBreakUnknown(t *testing.T) {
	_, err := broken(memstore.New(), "everything", stageTTL)
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "everything") || !strings.Contains(err.Error(), "margin") {
		t.Errorf("error %v", err)
	}
}
