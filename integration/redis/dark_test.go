package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A client that goes dark in the middle of any request, before the server has it or
// before it has the reply, holds up nobody, but for the TTL of what it has.
func TestRedisDarkClient(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	near := openRedis(t, r)
	held := hold(t, near, 100)
	eachAdapter(t, func(t *testing.T, open opener) { goesDark(t, r, near, held, open) })
}

func goesDark(t *testing.T, r *servers.Redis, near driver.Store, held []driver.Claim, open opener) {
	refs := make([]driver.Ref, len(held))
	for i, m := range held {
		refs[i] = storetest.Ref(m)
	}
	const ttl = 500 * time.Millisecond
	for _, replies := range []bool{false, true} {
		for what, call := range map[string]func(s driver.Store, mine driver.Claim, waits driver.Claim) error{
			"enter": func(s driver.Store, mine, _ driver.Claim) error {
				_, err := s.Enter(await.Brief(t, ttl), storetest.Mutex(mine.Name+" new", ttl))
				return err
			},
			"renew": func(s driver.Store, mine, waits driver.Claim) error {
				var errs [2]error // told side by side
				s.Renew(await.Brief(t, ttl), []driver.Ref{storetest.Ref(mine), storetest.Ref(waits)}, func(i int, _ driver.Status, e error) { errs[i] = e })
				return errors.Join(errs[:]...)
			},
			"leave": func(s driver.Store, mine, _ driver.Claim) error {
				_, err := s.Leave(await.Brief(t, ttl), storetest.Ref(mine))
				return err
			},
			"resize": func(s driver.Store, mine, _ driver.Claim) error {
				_, err := s.Resize(await.Brief(t, ttl), storetest.Ref(mine), 1)
				return err
			},
			"adopt": func(s driver.Store, mine, _ driver.Claim) error {
				st, err := near.Inspect(t.Context(), mine.Name)
				if err != nil || len(st.Claims) == 0 {
					return fmt.Errorf("%v, %v", st, err)
				}
				_, err = s.Adopt(await.Brief(t, ttl), driver.Adoption{
					Name: mine.Name, ID: mine.ID, Kind: mine.Kind, Units: mine.Units, Token: st.Claims[0].Token, Mark: driver.NewID(), TTL: ttl,
				})
				return err
			},
			"list": func(s driver.Store, _, _ driver.Claim) error { return storetest.List(await.Brief(t, ttl), s, "") },
		} {
			side := "request"
			if replies {
				side = "reply"
			}
			t.Run(what+", no "+side, func(t *testing.T) {
				t.Parallel()
				proxy := servers.RunProxy(t, r.Addr())
				far := open(t, "redis://"+proxy.Addr())
				t.Cleanup(proxy.Cut) // else it ends, too, but later
				name := t.Name()
				mine, ahead, waits := storetest.Mutex(name, ttl), storetest.Mutex(name+" queue", time.Minute), storetest.Mutex(name+" queue", ttl)
				storetest.Enter(t, near, ahead, driver.Holding)
				storetest.Enter(t, far, waits, driver.Waiting)
				storetest.Enter(t, far, mine, driver.Holding)
				proxy.Swallow(!replies, replies)
				if err := call(far, mine, waits); err == nil {
					t.Error("no error")
				}
				// The others go on at once,
				near.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
					if err != nil || st.State != driver.Holding {
						t.Errorf("%s: %v, %v", refs[i].Name, st.State, err)
					}
				})
				// and have what it had, and waited for, after its TTL.
				next := storetest.Mutex(name, time.Minute)
				await.That(t, "the next one holds", func() bool {
					st, err := near.Enter(await.Context(t), next)
					return err == nil && st.State == driver.Holding
				})
				after := storetest.Mutex(name+" queue", time.Minute)
				storetest.Enter(t, near, after, driver.Waiting)
				if was, err := near.Leave(await.Context(t), storetest.Ref(ahead)); err != nil || was != driver.Holding {
					t.Errorf("leave: %v, %v", was, err)
				}
				await.That(t, "the one after the dark one holds", func() bool {
					st, err := storetest.Renew(await.Context(t), near, after)
					return err == nil && st.State == driver.Holding
				})
			})
		}
	}
}
