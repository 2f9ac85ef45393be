package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
)

// resource refuses writes with a token older than one it has seen.
type resource struct{ highest atomic.Int64 }

var errStale = errors.New("stale token")

func (r *resource) write(token int64) error {
	if token < r.highest.Load() {
		return errStale
	}
	r.highest.Store(token)
	return nil
}

func clientAt(t *testing.T, addr string, ttl time.Duration) *pawl.Client {
	t.Helper()
	return clientOf(t, openAt(t, "redis://"+addr), ttl)
}

func clientOf(t testing.TB, store *redisstore.Store, ttl time.Duration) *pawl.Client {
	t.Helper()
	c := pawl.New(store, &pawl.Options{TTL: ttl})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		c.Close(ctx) // some cannot reach their server any more
	})
	return c
}

// The connection of the holder breaks in all ways that keep the server's word:
// the holder is told before another holds, and what it writes after that is
// refused.
func TestToldBeforeAnotherHolds(t *testing.T) {
	t.Parallel()
	eachAdapter(t, toldFirst)
}

func toldFirst(t *testing.T, open opener) {
	const ttl = 6 * time.Second
	for name, fault := range map[string]func(*servers.Proxy){
		"requests swallowed": func(p *servers.Proxy) { p.Swallow(true, false) },
		"replies swallowed":  func(p *servers.Proxy) { p.Swallow(false, true) },
		"all swallowed":      func(p *servers.Proxy) { p.Swallow(true, true) },
		"cut and refused":    (*servers.Proxy).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servers.RunRedis(t, servers.RedisOptions{})
			p := servers.RunProxy(t, r.Addr())
			far, near := clientOf(t, open(t, "redis://"+p.Addr()), ttl), clientAt(t, r.Addr(), ttl)
			old, next := storetest.TakenOver(t, far, near, func() { fault(p) })
			if err := old.Unlock(t.Context()); !errors.Is(err, pawl.ErrLost) {
				t.Errorf("unlock returns %v", err)
			}
			var res resource
			if err := res.write(next.Token()); err != nil {
				t.Errorf("the new holder's write: %v", err)
			}
			if err := res.write(old.Token()); !errors.Is(err, errStale) {
				t.Errorf("the old holder's write: %v", err)
			}
		})
	}
}

// The engine itself forgets: the holder is told with its next renewal, and the
// tokens rise all the same.
func TestToldThatTheEngineForgot(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	a, b := clientAt(t, r.Addr(), ttl), clientAt(t, r.Addr(), ttl)
	var last int64
	faults := map[string]func() error{
		"FLUSHALL": func() error { return c.Do(t.Context(), c.B().Flushall().Build()).Error() },
		"DEL":      func() error { return c.Do(t.Context(), c.B().Del().Key("pawl:{x}").Build()).Error() },
		"restart without data": func() error {
			r.Stop()
			return r.Restart(false)
		},
	}
	for _, name := range []string{"FLUSHALL", "DEL", "restart without data"} {
		fault := faults[name]
		l, err := a.Mutex("x").Lock(await.Context(t))
		if err != nil {
			t.Fatal(name, err)
		}
		if l.Token() <= last {
			t.Errorf("%s: token %d after %d", name, l.Token(), last)
		}
		if err := fault(); err != nil {
			t.Fatal(name, err)
		}
		next, err := b.Mutex("x").Lock(await.Context(t))
		if err != nil {
			t.Fatal(name, err)
		}
		if next.Token() <= l.Token() {
			t.Errorf("%s: token %d after %d", name, next.Token(), l.Token())
		}
		last = next.Token()
		await.Value(t, name+": it is told", l.Lost())
		if err := next.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
