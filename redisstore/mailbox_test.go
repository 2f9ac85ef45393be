package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/bubble"
)

// stubbornConn is a client whose subscriptions do not end with their context.
type stubbornConn struct {
	Conn
	subscribed chan struct{}
	gone       chan struct{}
}

func (s *stubbornConn) Subscribe(context.Context, string, func(), func(string)) error {
	close(s.subscribed)
	<-s.gone
	return errors.New("gone")
}

// TestMailboxStops: Close does not hang with such a client.
func TestMailboxStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := &stubbornConn{subscribed: make(chan struct{}), gone: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		b := newMailbox(ctx, conn, false, "mailbox")
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
