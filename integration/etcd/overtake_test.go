package etcd

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// Somebody gets ahead of a claim that waits, and while the transaction for that is under
// way the claim in front of both leaves. Then the one that waits holds, by its place alone,
// if it comes first; and what it was told stays true.
func TestEtcdOvertakeBesideLeave(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	const limit = 3
	ctx := await.Context(t)
	claim := func(name string, units int64) driver.Claim {
		c := storetest.Mutex(name, time.Hour)
		c.Kind, c.Units, c.Limit = driver.KindSemaphore, units, limit
		return c
	}
	for what, try := range map[string]struct {
		front, waits int64
		most         int64 // units that may be held then
		own          bool  // a claim of the one who gets ahead holds at first
		ahead        func(s driver.Store, own driver.Claim) error
	}{
		"Enter": {1, limit, limit, false, func(s driver.Store, own driver.Claim) error {
			own.Overtake = true
			_, err := s.Enter(ctx, own)
			return err
		}},
		"Try": {1, limit, limit, false, func(s driver.Store, own driver.Claim) error {
			own.Overtake, own.Try = true, true
			_, err := s.Enter(ctx, own)
			return err
		}},
		"Resize": {1, limit - 1, limit, true, func(s driver.Store, own driver.Claim) error {
			_, err := s.Resize(ctx, storetest.Ref(own), 2)
			return err
		}},
		"SetLimit": {1, limit - 1, limit, true, func(s driver.Store, own driver.Claim) error {
			return s.SetLimit(ctx, own.Name, own.Kind, limit, 2)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			told := 0
			for n := range 8 {
				var m meddler
				near, far := openEtcd(t, e), m.store(t, e)
				name := fmt.Sprint(what, n)
				front, waits, own := claim(name, try.front), claim(name, try.waits), claim(name, 1)
				if try.own {
					storetest.Enter(t, far, own, driver.Holding)
				}
				storetest.Enter(t, near, front, driver.Holding)
				storetest.Enter(t, near, waits, driver.Waiting)
				var transactions atomic.Int64
				held, release := m.hold(func(req any) bool {
					_, ok := req.(*pb.TxnRequest)
					return ok && transactions.Add(1) == int64(n+1)
				})
				done := make(chan error, 1)
				go func() { done <- try.ahead(far, own) }()
				select {
				case <-held:
				case err := <-done: // there are no more
					if err != nil {
						t.Errorf("with %d transactions: %v", n, err)
					}
					release()
					if told == 0 {
						t.Error("who waits was never told that it holds meanwhile")
					}
					return
				}
				storetest.Leave(t, near, front)
				before, err := near.Enter(ctx, waits) // again: it tells where it stands
				if err != nil {
					t.Fatal(err)
				}
				release()
				if err := await.Value(t, "it is over", done); err != nil {
					t.Errorf("held up at transaction %d: %v", n+1, err)
				}
				q, err := near.Inspect(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				used, holds := int64(0), false
				for _, c := range q.Claims {
					if c.State == driver.Holding {
						used += c.Units
						holds = holds || c.ID == waits.ID
					}
				}
				if used > try.most {
					t.Errorf("held up at transaction %d: %d units are held: %+v", n+1, used, q.Claims)
				}
				if before.State != driver.Holding {
					continue
				}
				if told++; !holds {
					t.Errorf("held up at transaction %d: %s was told that it holds, and does not: %+v", n+1, waits.ID, q.Claims)
				}
				// It is told of that token as long as it holds: another would be a later grant.
				for _, tell := range []func() (driver.Status, error){
					func() (driver.Status, error) { return storetest.Renew(ctx, near, waits) },
					func() (driver.Status, error) { return near.Wait(ctx, storetest.Ref(waits)) },
					func() (driver.Status, error) { return near.Enter(ctx, waits) },
					func() (driver.Status, error) { return near.Resize(ctx, storetest.Ref(waits), waits.Units) },
					func() (driver.Status, error) { return storetest.Renew(ctx, near, waits) },
				} {
					if st, err := tell(); err != nil || st.Token != before.Token || st.Spare != before.Spare {
						t.Errorf("held up at transaction %d: told of token %d and %d more, %v; before of %d and %d", n+1, st.Token, st.Spare, err, before.Token, before.Spare)
					}
				}
				// What it does goes by the token that it was told.
				adoption := driver.Adoption{
					Name: name, ID: waits.ID, Kind: waits.Kind, Units: waits.Units, Token: before.Token, Mark: driver.NewID(), TTL: time.Hour,
				}
				earlier := adoption
				for _, c := range q.Claims {
					if c.ID == waits.ID {
						earlier.Token = c.Token - 1 // nobody's, though it may be above what it was told
					}
				}
				if st, err := near.Adopt(ctx, earlier); err != nil || st.State != driver.Refused {
					t.Errorf("held up at transaction %d: adopted with token %d: %+v, %v", n+1, earlier.Token, st, err)
				}
				if st, err := near.Adopt(ctx, adoption); err != nil || st.State != driver.Holding || st.Token <= before.Token {
					t.Errorf("held up at transaction %d: adopted: %+v, %v; it had token %d", n+1, st, err, before.Token)
				}
			}
			t.Error("it takes more and more transactions")
		})
	}
}
