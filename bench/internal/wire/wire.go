// Package wire counts the commands that clients send to Redis, on their way:
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

// Commands answers how many there were so far.
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
func (c *Counter) Wrap(conn net.Conn) net.Conn { return &counted{Conn: conn, counter: c, crlf: 2} }

// counted watches for arrays of RESP at the start of a line. An argument that
// starts with an asterisk would be counted too; the bench has none.
type counted struct {
	net.Conn
	counter *Counter
	crlf    int // how much of "\r\n" the last write ended with; 2 at the start
}

var command = []byte("\r\n*")

// Write is called by one goroutine at a time, as clients of Redis do.
func (c *counted) Write(b []byte) (int, error) {
	n := bytes.Count(b, command)
	if c.crlf == 2 && len(b) > 0 && b[0] == '*' || c.crlf == 1 && bytes.HasPrefix(b, command[1:]) {
		n++
	}
	switch {
	case bytes.HasSuffix(b, command[:2]), c.crlf == 1 && len(b) == 1 && b[0] == '\n':
		c.crlf = 2
	case bytes.HasSuffix(b, command[:1]):
		c.crlf = 1
	case len(b) > 0:
		c.crlf = 0
	}
	if n > 0 {
		c.counter.commands.Add(int64(n))
	}
	return c.Conn.Write(b)
}
