package torture

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// What is late has no reply, is carried out all the same, and not any more after the end.
func TestDelayed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		s := newDelayStore(memstore.New(), ttl, rand.New(rand.NewPCG(1, 1)))
		enter := func(name string) driver.Ref {
			c := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Hour}
			if st, err := s.Enter(t.Context(), c); err != nil || st.State != driver.Holding {
				t.Fatal(st, err)
			}
			return driver.Ref{Name: name, ID: c.ID, TTL: c.TTL}
		}
		claims := func(name string) int {
			q, err := s.Inspect(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return len(q.Claims)
		}
		r := enter("late")
		s.next()
		_, err := s.Leave(t.Context(), r)
		if synctest.Wait(); !errors.Is(err, errLate) || claims(r.Name) != 1 {
			t.Errorf("%v, and %d claims", err, claims(r.Name))
		}
		time.Sleep(ttl / 4)
		if synctest.Wait(); claims(r.Name) != 0 {
			t.Error("it is not carried out")
		}
		r = enter("given up")
		s.next()
		if _, err := s.Leave(t.Context(), r); !errors.Is(err, errLate) {
			t.Error(err)
		}
		s.end()
		if time.Sleep(ttl); claims(r.Name) != 1 {
			t.Error("it is carried out after the end")
		}
		s.next()
		if was, err := s.Leave(t.Context(), r); err != nil || was != driver.Holding {
			t.Error(was, err)
		}
	})
}
