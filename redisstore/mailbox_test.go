package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// deafConn is a client whose subscriptions do not end with their context.
type deafConn struct {
	Conn
	subscribed chan struct{}
	gone       chan struct{}
}

func (d *deafConn) Subscribe(context.Context, string, func(), func(string)) error {
	close(d.subscribed)
	<-d.gone
	return errors.New("gone")
}

// TestMailboxStops: Close does not hang with such a client.
func TestMailboxStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &deafConn{subscribed: make(chan struct{}), gone: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		b := newMailbox(ctx, conn, "mailbox")
		b.begin()
		<-conn.subscribed
		cancel()
		start := time.Now()
		b.stop()
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("stop took %v", d)
		}
		close(conn.gone)
	})
}
