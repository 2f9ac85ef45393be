package main

import (
	"net"
	"sync"
)

// limited is a listener with so many connections at a time: more wait in the system's
// queue.
type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	close  func() error
}

func newLimited(l net.Listener, n int) *limited {
	closed := make(chan struct{})
	return &limited{l, make(chan struct{}, n), closed, sync.OnceValue(func() error {
		close(closed)
		return l.Close()
	})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error { return l.close() }

type limitedConn struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
