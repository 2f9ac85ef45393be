package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// The two ways through a proxy.
const (
	requests = iota
	replies
)

// trouble is what a proxy does to what goes through it. The zero value is none.
type trouble struct {
	refuse bool          // connections that are made
	slow   time.Duration // each chunk comes late by up to this
	dark   [2]bool       // nothing comes through; connections stay up
	after  [2]int64      // but for so many more bytes: it begins in the middle of something
	lossy  bool          // what came while it was dark never arrives, so that the connection ends with it; else it arrives late
}

// proxy stands between one process and one address of the store.
type proxy struct {
	network, target string
	listener        net.Listener
	work            sync.WaitGroup

	mu      sync.Mutex
	trouble trouble
	changed chan struct{} // closed when trouble is another one
	links   map[*pair]bool
	closed  bool
}

// pair is a connection through a proxy.
type pair struct {
	client, server net.Conn
	lost           bool // bytes of it
}

// newProxy starts a proxy to an address: "tcp" and host:port, or "unix" and a path.
// It listens at a unix socket at path, or on a port of its own if that is empty.
func newProxy(network, target, path string) (*proxy, error) {
	var l net.Listener
	var err error
	if path != "" {
		l, err = net.Listen("unix", path)
	} else {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("start a proxy for %s: %w", target, err)
	}
	p := &proxy{network: network, target: target, listener: l, changed: make(chan struct{}), links: make(map[*pair]bool)}
	p.work.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set makes that the trouble from now on.
func (p *proxy) set(t trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = t
	close(p.changed)
	p.changed = make(chan struct{})
	if t.dark != [2]bool{} {
		return
	}
	for l := range p.links {
		if l.lost { // the rest would be read as something else
			l.end(false)
		}
	}
}

// cut ends all connections, with a reset or in order.
func (p *proxy) cut(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end(reset)
	}
}

func (l *pair) end(reset bool) {
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.trouble = trouble{}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.cut(false)
	p.work.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no more files, say
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.work.Go(func() { p.connect(client) })
	}
}

func (p *proxy) connect(client net.Conn) {
	l := &pair{client: client}
	if p.refuses() {
		l.server = client
		l.end(true)
		return
	}
	server, err := net.DialTimeout(p.network, p.target, 5*time.Second)
	if err != nil {
		client.Close()
		return
	}
	l.server = server
	p.mu.Lock()
	refuse := p.trouble.refuse || p.closed
	if !refuse {
		p.links[l] = true
	}
	p.mu.Unlock()
	if refuse {
		l.end(true)
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.pump(l, requests, client, server) })
	ways.Go(func() { p.pump(l, replies, server, client) })
	ways.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble.refuse || p.closed
}

// pump passes on what comes from one end, in order.
func (p *proxy) pump(l *pair, way int, from, to net.Conn) {
	// Also the other way: half a connection is of no use to any client.
	defer l.end(false)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := p.pass(l, way, to, buf[:n]); err != nil {
				p.tell(1-way, err)
				return
			}
		}
		if err != nil {
			p.tell(way, err)
			return
		}
	}
}

// tell returns when the other end may learn that a connection has ended: while it is
// dark that way, it does not, unless the connection was cut here.
func (p *proxy) tell(way int, err error) {
	for !errors.Is(err, net.ErrClosed) {
		p.mu.Lock()
		dark, changed := p.trouble.dark[way], p.changed
		p.mu.Unlock()
		if !dark {
			return
		}
		<-changed
	}
}

// pass passes a chunk on, now, late or never.
func (p *proxy) pass(l *pair, way int, to net.Conn, chunk []byte) error {
	for len(chunk) > 0 {
		n, slow, changed := p.admit(l, way, len(chunk))
		if n < 0 {
			return nil
		}
		if n == 0 {
			<-changed
			continue
		}
		if slow > 0 {
			select {
			case <-time.After(slow):
			case <-changed:
			}
		}
		if _, err := to.Write(chunk[:n]); err != nil {
			return err
		}
		chunk = chunk[n:]
	}
	return nil
}

// admit returns how many of so many bytes may pass: none before it has changed, or
// none ever (-1); and how late they are.
func (p *proxy) admit(l *pair, way, n int) (int, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.trouble
	var slow time.Duration
	if t.slow > 0 {
		slow = min(time.Millisecond, t.slow) + rand.N(t.slow)
	}
	if !t.dark[way] {
		return n, slow, p.changed
	}
	if t.after[way] > 0 {
		n = int(min(int64(n), t.after[way]))
		t.after[way] -= int64(n)
		return n, slow, p.changed
	}
	if t.lossy {
		l.lost = true
		return -1, 0, p.changed
	}
	return 0, 0, p.changed
}
