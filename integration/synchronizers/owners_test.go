//go:build unix

package synchronizers

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
)

// A claim goes from owner to owner, over two stores, while what earlier owners have
// sent keeps arriving: nothing of that changes anything, and tokens rise.
func TestManyOwners(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			memory := memstore.New()
			open := func() (driver.Store, error) { return unclosed{memory}, nil }
			if e.start != nil {
				url := e.start(t)
				open = func() (driver.Store, error) { return openURL(url) }
			}
			o := &owners{T: t, ctx: await.Context(t)}
			for i := range o.stores {
				s, err := open()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				o.stores[i] = s
			}
			for round := range 4 {
				c := driver.Claim{Name: "owners", ID: driver.NewID(), Kind: driver.KindRW, Units: int64(4 - round), Limit: 4, TTL: time.Hour}
				if round%2 == 0 { // the shape of the short ways
					c.Kind, c.Units, c.Limit = driver.KindMutex, 1, 1
				}
				o.pass(c)
			}
		})
	}
}

// owners are those of a claim, one after the other.
type owners struct {
	*testing.T
	ctx    context.Context
	stores [2]driver.Store
	top    int64 // the highest token
}

func (o *owners) store() driver.Store { return o.stores[rand.IntN(len(o.stores))] }

// holds checks what the owner is told.
func (o *owners) holds(what string, st driver.Status, err error) {
	o.Helper()
	if err != nil || st.State != driver.Holding {
		o.Fatalf("%s: %+v, %v", what, st, err)
	}
}

func (o *owners) rises(what string, token int64) {
	o.Helper()
	if token <= o.top {
		o.Fatalf("%s: token %d after %d", what, token, o.top)
	}
	o.top = token
}

// pass enters the claim, hands it on some times, and leaves; one that waits is next.
func (o *owners) pass(c driver.Claim) {
	o.Helper()
	st, err := o.store().Enter(o.ctx, c)
	o.holds("enter", st, err)
	o.rises("enter", st.Token)
	next := c
	next.ID, next.Units = driver.NewID(), c.Limit
	if st, err := o.store().Enter(o.ctx, next); err != nil || st.State != driver.Waiting {
		o.Fatalf("enter behind it: %+v, %v", st, err)
	}
	var late sync.WaitGroup
	defer late.Wait()
	mark := ""
	for range 3 {
		a := driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: o.top, Mark: driver.NewID(), TTL: c.TTL}
		st, err := o.store().Adopt(o.ctx, a)
		o.holds("adopt", st, err)
		old, token := mark, o.top
		o.rises("adopt", st.Token)
		for range 3 { // while the claim goes on to others
			late.Go(func() { o.late(c, old, token) })
		}
		mark = a.Mark
		o.renew(c, mark)
	}
	late.Wait()
	o.renew(c, mark)
	if was, err := o.store().Leave(o.ctx, driver.Ref{Name: c.Name, ID: c.ID, Mark: mark}); err != nil || was != driver.Holding {
		o.Fatalf("the owner leaves: %v, %v", was, err)
	}
	await.That(o, "the next one holds", func() bool {
		st := o.told(next, "")
		if st.State == driver.Holding {
			o.rises("the next one", st.Token)
		}
		return st.State != driver.Waiting
	})
	if was, err := o.store().Leave(o.ctx, driver.Ref{Name: c.Name, ID: next.ID}); err != nil || was != driver.Holding {
		o.Fatalf("the next one leaves: %v, %v", was, err)
	}
	if q, err := o.store().Inspect(o.ctx, c.Name); err != nil || len(q.Claims) != 0 {
		o.Fatalf("left behind: %+v, %v", q.Claims, err)
	}
}

func (o *owners) told(c driver.Claim, mark string) (st driver.Status) {
	o.Helper()
	// Who waits is known to the first store.
	o.stores[0].Renew(o.ctx, []driver.Ref{{Name: c.Name, ID: c.ID, Mark: mark, TTL: c.TTL}}, func(_ int, got driver.Status, err error) {
		if st = got; err != nil {
			o.Errorf("renew: %v", err)
		}
	})
	return st
}

// renew does what the owner does.
func (o *owners) renew(c driver.Claim, mark string) {
	o.Helper()
	if st := o.told(c, mark); st.State != driver.Holding || st.Token != o.top {
		o.Fatalf("the owner renews: %+v; its token was %d", st, o.top)
	}
}

// late sends what an earlier owner may have sent, in any order.
func (o *owners) late(c driver.Claim, mark string, token int64) {
	r := driver.Ref{Name: c.Name, ID: c.ID, Mark: mark, TTL: 2 * c.TTL, Used: token + 1<<14}
	linger := r
	linger.Linger = time.Hour
	leave := func(r driver.Ref) func(s driver.Store) (driver.State, error) {
		return func(s driver.Store) (driver.State, error) { return s.Leave(o.ctx, r) }
	}
	asked := []func(s driver.Store) (driver.State, error){
		leave(r), leave(linger),
		func(s driver.Store) (state driver.State, err error) {
			s.Renew(o.ctx, []driver.Ref{r}, func(_ int, st driver.Status, e error) { state, err = st.State, e })
			return state, err
		},
		func(s driver.Store) (driver.State, error) {
			st, err := s.Resize(o.ctx, r, c.Limit)
			return st.State, err
		},
		func(s driver.Store) (driver.State, error) { st, err := s.Enter(o.ctx, c); return st.State, err },
		func(s driver.Store) (driver.State, error) {
			st, err := s.Adopt(o.ctx, driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: token, Mark: driver.NewID(), TTL: c.TTL})
			if st.State == driver.Refused {
				st.State = driver.Gone
			}
			return st.State, err
		},
	}
	for _, i := range rand.Perm(len(asked)) {
		if state, err := asked[i](o.store()); err != nil || state != driver.Gone {
			o.Errorf("late request %d of an earlier owner: %v, %v", i, state, err)
		}
	}
}
