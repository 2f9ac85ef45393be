package rueidis

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// dialed are the connections of a client that this package made.
type dialed struct {
	mu    sync.Mutex
	conns map[*tracked]struct{}
	last  time.Time // that they were dropped
}

type tracked struct {
	net.Conn
	all *dialed
}

func (d *dialed) track(c net.Conn) net.Conn {
	t := &tracked{c, d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = make(map[*tracked]struct{})
	}
	d.conns[t] = struct{}{}
	return t
}

func (t *tracked) Close() error {
	t.all.mu.Lock()
	delete(t.all.conns, t)
	t.all.mu.Unlock()
	return t.Conn.Close()
}

// drop ends all connections, once in a second: the server that they lead to is
// not the primary any more, and the name it was found by may lead to another by
// now. The client makes new ones by itself.
func (d *dialed) drop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	var old []*tracked
	if time.Since(d.last) > time.Second {
		d.last = time.Now()
		old = slices.Collect(maps.Keys(d.conns))
	}
	d.mu.Unlock()
	for _, t := range old {
		t.Close()
	}
}
