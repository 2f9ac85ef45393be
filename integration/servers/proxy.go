package servers

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between a client and a server, and swallows what it is told to.
type Proxy struct {
	target   string
	within   time.Duration // with a server that does not listen yet
	listener net.Listener

	swallowed atomic.Int64

	mu       sync.Mutex
	requests bool // swallow them
	replies  bool
	refuse   bool
	conns    map[net.Conn]net.Conn // both ends, each by the other
	said     map[net.Conn][]byte   // by clients, at the beginning
	unwanted string                // see CutFrom
	work     sync.WaitGroup
}

// RunProxy starts a proxy in front of the server at addr for the test.
func RunProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return runProxy(t, addr, 0)
}

func runProxy(t testing.TB, addr string, within time.Duration) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: addr, within: within, listener: l, conns: make(map[net.Conn]net.Conn), said: make(map[net.Conn][]byte)}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.work.Wait()
	})
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Swallow lets requests or replies vanish from now on, connections stay up.
func (p *Proxy) Swallow(requests, replies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.replies = requests, replies
}

// Swallowed returns how many bytes have vanished.
func (p *Proxy) Swallowed() int64 { return p.swallowed.Load() }

// Cut ends all connections, and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.drop()
}

// CutFrom ends the connections of clients who have said that text at the
// beginning, and those of all who will; "" for nobody.
func (p *Proxy) CutFrom(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = text
	for c, said := range p.said {
		if p.unwants(said) {
			c.Close()
			p.conns[c].Close()
		}
	}
}

func (p *Proxy) unwants(said []byte) bool {
	return p.unwanted != "" && bytes.Contains(said, []byte(p.unwanted))
}

// Drop ends all connections. On new ones nothing vanishes.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.replies = false, false
	p.drop()
}

func (p *Proxy) drop() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	clear(p.said)
}

// Restore takes connections again after Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := p.dial()
		if err != nil || !p.keep(client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		p.work.Go(func() { p.copy(server, client, &p.requests) })
		p.work.Go(func() { p.copy(client, server, &p.replies) })
	}
}

func (p *Proxy) dial() (net.Conn, error) {
	for end := time.Now().Add(p.within); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", p.target)
		if err == nil || !time.Now().Before(end) {
			return c, err
		}
	}
}

func (p *Proxy) keep(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		return false
	}
	p.conns[client], p.conns[server] = server, client
	return true
}

// hear notes what a client says first, and reports whether it is to be heard.
func (p *Proxy) hear(from net.Conn, said []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[from] != nil {
		p.said[from] = bytes.Clone(said)
	}
	return !p.unwants(said)
}

// copy passes on what comes from a connection unless it is to be swallowed.
func (p *Proxy) copy(to, from net.Conn, swallow *bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for first := swallow == &p.requests; ; first = false {
		n, err := from.Read(buf)
		if first && !p.hear(from, buf[:n]) {
			from.Close()
			return
		}
		p.mu.Lock()
		drop := *swallow
		p.mu.Unlock()
		if drop {
			p.swallowed.Add(int64(n))
		} else if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
