package zkstore

import (
	"net"
	"testing"
	"time"
)

// A request that cannot be written gets one reply, when the connection has
// ended: a second reply that nobody takes would keep Close from returning.
func TestFailedWriteEndsTheConnection(t *testing.T) {
	here, there := net.Pipe()
	there.Close()
	w := &wire{Conn: here, session: new(session), closed: make(chan struct{}), known: true, asked: time.Now()}
	if n, err := w.Write(make([]byte, 20)); n != 20 || err != nil {
		t.Errorf("write on a broken connection: %d, %v; the client would reply to the request by itself", n, err)
	}
	select {
	case <-w.closed:
	default:
		t.Error("the connection stays open: nobody would reply to the request")
	}
	w = &wire{Conn: here, session: new(session), closed: make(chan struct{})}
	if _, err := w.Write(make([]byte, 20)); err == nil {
		t.Error("no session can be asked for, and nobody is told")
	}
}
