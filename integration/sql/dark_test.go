package sql

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
)

// dark stands between clients and a server, as the network of a machine that
// vanishes: from some message on nothing gets through any more, and the server
// is not told that its clients are gone.
type dark struct {
	listener net.Listener
	target   string
	gone     chan struct{} // closed when nothing gets through

	mu    sync.Mutex
	left  int // messages until then; below 0: as many as come
	conns []net.Conn
}

func runDark(t testing.TB, target string) *dark {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dark{listener: l, target: target, gone: make(chan struct{}), left: -1}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			d.mu.Lock()
			d.conns = append(d.conns, client, server)
			d.mu.Unlock()
			work.Go(func() { d.copy(server, client, true) })
			work.Go(func() { d.copy(client, server, false) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		d.mu.Lock()
		for _, c := range d.conns {
			c.Close()
		}
		d.mu.Unlock()
		work.Wait()
	})
	return d
}

// after lets so many further messages of clients through.
func (d *dark) after(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// through reports whether a message gets through.
func (d *dark) through(request bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.left < 0 || !request && d.left > 0:
	case request && d.left > 0:
		d.left--
	default:
		select {
		case <-d.gone:
		default:
			close(d.gone)
		}
		return false
	}
	return true
}

func (d *dark) copy(to, from net.Conn, request bool) {
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		if n > 0 && d.through(request) {
			to.Write(buf[:n])
		}
		if err != nil {
			select {
			case <-d.gone: // the other end is not told
			default:
				to.Close()
			}
			return
		}
	}
}

// At whichever message of whichever request a client's machine vanishes: those
// that remain go on at once, on the same names as on others.
func TestSQLDarkClient(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		const names = 20
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Hour), driver.Holding)
		part := func(name string) driver.Claim {
			return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 3, TTL: time.Hour}
		}
		for at := 0; ; at++ {
			name := func(what string, i int) string { return fmt.Sprintf("%d/%s/%d", at, what, i) }
			d := runDark(t, e.Addr())
			s := e.open(t, d.listener.Addr().String())
			var mine, theirs []driver.Ref
			for i := range names {
				for _, c := range []driver.Claim{storetest.Mutex(name("held", i), time.Hour)} {
					storetest.Enter(t, s, c, driver.Holding)
					mine = append(mine, storetest.Ref(c))
				}
				c := storetest.Mutex(name("others", i), time.Hour)
				storetest.Enter(t, good, c, driver.Holding)
				theirs = append(theirs, storetest.Ref(c))
			}
			shared := part(name("shared", 0))
			storetest.Enter(t, good, shared, driver.Holding)
			d.after(at)
			ctx, cancel := context.WithCancel(await.Context(t))
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Renew(ctx, mine, func(int, driver.Status, error) {})
				p := part(shared.Name)
				s.Enter(ctx, p)
				s.Resize(ctx, storetest.Ref(p), 2)
				s.Leave(ctx, storetest.Ref(p))
				s.SetLimit(ctx, name("limit", 0), driver.KindSemaphore, 3, 4)
				s.Enter(ctx, storetest.Mutex(name("others", 0), time.Hour))
				s.Leave(ctx, mine[0])
				s.CompareAndSwap(ctx, driver.Record{Name: name("record", 0), Value: []byte("x")})
			}()
			finished := false
			select {
			case <-d.gone:
			case <-done:
				finished = true
			}
			if !finished {
				count := 0
				var mu sync.Mutex
				good.Renew(await.Context(t), append(mine, theirs...), func(i int, st driver.Status, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err == nil && (st.State == driver.Holding || i == 0) {
						count++
					} else {
						t.Errorf("dark after %d messages: renewed %d: %v, %v", at, i, st.State, err)
					}
				})
				if count != 2*names {
					t.Errorf("dark after %d messages: %d are renewed", at, count)
				}
				p := part(shared.Name)
				if st, err := good.Enter(await.Context(t), p); err != nil || st.State == driver.Gone {
					t.Errorf("dark after %d messages: %v, %v", at, st.State, err)
				}
				if _, err := good.Leave(await.Context(t), storetest.Ref(shared)); err != nil {
					t.Errorf("dark after %d messages: %v", at, err)
				}
				if err := good.SetLimit(await.Context(t), name("limit", 0), driver.KindSemaphore, 3, 4); err != nil {
					t.Errorf("dark after %d messages: %v", at, err)
				}
				if _, err := good.Leave(await.Context(t), theirs[0]); err != nil {
					t.Errorf("dark after %d messages: %v", at, err)
				}
				if _, err := good.CompareAndSwap(await.Context(t), driver.Record{Name: name("record", 1), Value: []byte("x")}); err != nil {
					t.Errorf("dark after %d messages: %v", at, err)
				}
			}
			cancel()
			<-done
			s.Close()
			if finished {
				if at < 8 {
					t.Errorf("only %d messages", at)
				}
				return
			}
		}
	})
}
