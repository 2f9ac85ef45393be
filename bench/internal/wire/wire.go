// Package wire counts the commands that clients send to a server, on their way:
// the only place where all clients are alike, and where what a script runs
// inside the server cannot be taken for a command.
package wire

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
)

// Counter counts the commands written to its connections.
type Counter struct{ commands atomic.Int64 }

// Commands returns how many there were so far.
func (c *Counter) Commands() int64 { return c.commands.Load() }

// Dial opens a connection that counts.
func (c *Counter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return c.Wrap(conn), nil
}

// Wrap makes a connection count.
func (c *Counter) Wrap(conn net.Conn) net.Conn {
	return &counted{Conn: conn, counter: c, last: [2]byte{'\r', '\n'}}
}

// counted watches for arrays of RESP: an asterisk at the start of a line. An
// argument that starts with one would be counted too; the bench has none.
type counted struct {
	net.Conn
	counter *Counter
	last    [2]byte // that were written
}

// Write is called by one goroutine at a time, as clients of Redis do.
func (c *counted) Write(b []byte) (int, error) {
	// One search for a rare byte: the bench must not be seen in its figures.
	n := int64(0)
	for i := 0; ; i++ {
		next := bytes.IndexByte(b[i:], '*')
		if next < 0 {
			break
		}
		i += next
		if c.before(b, i, 2) == '\r' && c.before(b, i, 1) == '\n' {
			n++
		}
	}
	if len(b) > 0 {
		c.last = [2]byte{c.before(b, len(b), 2), c.before(b, len(b), 1)}
	}
	if n > 0 {
		c.counter.commands.Add(n)
	}
	return c.Conn.Write(b)
}

// before returns the byte that is written k before b[i], k being 1 or 2.
func (c *counted) before(b []byte, i, k int) byte {
	if i >= k {
		return b[i-k]
	}
	return c.last[2+i-k]
}

// Writes makes a connection count each write as one command, for clients that
// are not of Redis.
func (c *Counter) Writes(conn net.Conn) net.Conn { return &written{conn, c} }

type written struct {
	net.Conn
	counter *Counter
}

func (w *written) Write(b []byte) (int, error) {
	w.counter.commands.Add(1)
	return w.Conn.Write(b)
}
