package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

// Names that are spoiled, each in its way, cost themselves alone: all that are
// renewed beside them go on, in the same call.
func TestZooKeeperSpoiledNames(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s := openZooKeeper(t, z.URL(), nil)
	admin := dialZooKeeper(t, z)
	spoil := map[string]func(path string) error{
		"no queue":        func(path string) error { _, err := admin.Set(path, []byte("by hand"), -1); return err },
		"no data":         func(path string) error { _, err := admin.Set(path, nil, -1); return err },
		"a later version": func(path string) error { _, err := admin.Set(path, []byte(`{"queue":{"kind":"z"}}`), -1); return err },
	}
	var rs []driver.Ref
	for i := range 100 {
		c := storetest.Mutex(fmt.Sprint("good", i), time.Hour)
		storetest.Enter(t, s, c, driver.Holding)
		rs = append(rs, storetest.Ref(c))
	}
	for name := range spoil {
		c := storetest.Mutex(name, time.Hour)
		storetest.Enter(t, s, c, driver.Holding)
		rs = append(rs, storetest.Ref(c))
	}
	renew := func(spoiled bool) {
		t.Helper()
		var mu sync.Mutex
		s.Renew(await.Context(t), rs, func(i int, st driver.Status, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch bad := spoil[rs[i].Name] != nil && spoiled; {
			case bad && (!driver.IsPermanent(err) || st.State == driver.Holding):
				t.Errorf("%s: %v, %v", rs[i].Name, st.State, err)
			case !bad && (err != nil || st.State != driver.Holding):
				t.Errorf("%s, which is as it was: %v, %v", rs[i].Name, st.State, err)
			}
		})
	}
	renew(false)
	for name, f := range spoil {
		path := "/pawl/q/" + map[string]string{"no queue": "no%20queue", "no data": "no%20data", "a later version": "a%20later%20version"}[name]
		if err := f(path); err != nil {
			t.Fatal(err)
		}
	}
	renew(true)
	renew(true)
	if was := storetest.Leave(t, s, driver.Claim{Name: rs[0].Name, ID: rs[0].ID}); was != driver.Holding {
		t.Errorf("a good one leaves: %v", was)
	}
}

// dark is a network that is gone after so many requests: the last one arrives, its
// reply does not.
type dark struct {
	left atomic.Int64
	gone chan struct{} // closed then
}

func (d *dark) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case <-d.gone:
		return nil, errors.New("the network is gone")
	default:
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &darkConn{c, d}, err
}

type darkConn struct {
	net.Conn
	d *dark
}

func (c *darkConn) Write(p []byte) (int, error) {
	const ping = 12
	n := c.d.left.Load()
	if len(p) != ping {
		n = c.d.left.Add(-1)
	}
	if n < 0 {
		return len(p), nil
	}
	if n == 0 && len(p) != ping {
		defer close(c.d.gone)
	}
	return c.Conn.Write(p)
}

func (c *darkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.d.gone:
		return 0, errors.New("the network is gone") // what it has read is lost
	default:
		return n, err
	}
}

// A client goes dark in the middle of a request, whichever it is: others go on with
// other names at once, and have its name when its time is over, and not before.
func TestZooKeeperDarkClient(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	other := openZooKeeper(t, z.URL(), nil)
	const ttl = 2 * time.Second
	var work sync.WaitGroup
	var held, waited, left atomic.Int64
	const requests = 32 // more than are made
	for n := range requests {
		d := &dark{gone: make(chan struct{})}
		d.left.Store(int64(n + 1))
		s, err := zkstore.Open(z.URL(), &zkstore.Options{Dial: d.dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		work.Go(func() {
			name := fmt.Sprint("x", n)
			c, w := storetest.Mutex(name, ttl), storetest.Mutex(name, ttl)
			deadline, token := time.Time{}, int64(0)
			note := func(st driver.Status, err error) {
				if err == nil && st.State == driver.Holding && st.Deadline.After(deadline) {
					deadline = st.Deadline
				}
				token = max(token, st.Token)
			}
			leaving := false
			ctx, cancel := context.WithCancel(await.Context(t))
			defer cancel()
			go func() {
				select {
				case <-d.gone:
					time.Sleep(ttl / 10)
					cancel()
				case <-ctx.Done():
				}
			}()
			if st, err := s.Enter(ctx, c); err == nil {
				held.Add(1)
				note(st, nil)
				if st, err := s.Enter(ctx, w); err == nil && st.State == driver.Waiting {
					waited.Add(1)
				}
				note(storetest.Renew(ctx, s, c))
				mark := driver.NewID()
				note(s.Adopt(ctx, driver.Adoption{Name: name, ID: c.ID, Kind: c.Kind, Units: 1, Token: st.Token, Mark: mark, TTL: ttl}))
				note(storetest.Renew(ctx, s, c))
				s.Inspect(ctx, name)
				leaving = ctx.Err() == nil
				if was, err := s.Leave(ctx, driver.Ref{Name: name, ID: c.ID, Mark: mark, Linger: time.Millisecond}); err == nil && was == driver.Holding {
					left.Add(1)
				}
				storetest.Renew(ctx, s, w)
				s.Break(ctx, name)
			}
			free := storetest.Mutex("free of "+name, time.Hour)
			if st, err := other.Enter(await.Context(t), free); err != nil || st.State != driver.Holding {
				t.Errorf("another name, beside a client that goes dark after %d requests: %v, %v", n+1, st.State, err)
			}
			next := storetest.Mutex(name, time.Hour)
			got, err := storetest.Get(await.Context(t), other, next)
			if err != nil || got.State != driver.Holding || got.Token <= token {
				t.Errorf("the name of a client that goes dark after %d requests: %+v, %v; it had token %d", n+1, got, err, token)
			}
			if early := time.Until(deadline); early > 0 && !leaving {
				t.Errorf("the name of a client that goes dark after %d requests is had %v before its deadline", n+1, early)
			}
		})
	}
	work.Wait()
	t.Logf("of %d, %d held, %d waited with another claim and %d left", requests, held.Load(), waited.Load(), left.Load())
	if held.Load() == 0 || held.Load() == requests {
		t.Error("that is no middle")
	}
}
