package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// Dedicated is a connection of its own.
type Dedicated interface {
	Script(ctx context.Context, command, body string, keys, args []string) (string, error)

	// Do sends a command whose reply does not matter, unless it is an error.
	Do(ctx context.Context, words ...string) error

	// Protocol sends HELLO, and returns the field proto of the reply.
	Protocol(ctx context.Context) (int64, error)

	// OnInvalidations has f called with keys that have changed, with nil for all. It
	// returns a channel that is closed when the connection is lost, after the reason.
	OnInvalidations(f func(keys []string)) <-chan error

	Close()
}

// Track is redisstore.Tracker's method on d, which it closes. The client says of an
// error what the server replied, or "", and which server it was.
func Track(ctx context.Context, d Dedicated, reply func(error) string, failed func(error) error,
	changed func(keys []string), use func(context.Context, redisstore.ScriptRunner) error) error {
	defer d.Close()
	protocol, err := d.Protocol(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("track keys: %w", failed(err))
	case protocol < 3:
		return fmt.Errorf("track keys by RESP%d: that takes RESP3: %w", protocol, driver.ErrUnsupported)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	lost, ended := d.OnInvalidations(changed), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case err := <-lost:
			if err == nil {
				err = errors.New("connection lost")
			}
			cancel(fmt.Errorf("track keys: %w", failed(err)))
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-ended
	}()
	// The client may track for a cache of its own, in another mode.
	for _, state := range []string{"OFF", "ON"} {
		if err := d.Do(ctx, "CLIENT", "TRACKING", state); err != nil {
			return fmt.Errorf("track keys: %w", failed(err))
		}
	}
	var loads Loads
	return use(ctx, func(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
		text, err := loads.Run(ctx, s, func(command, body string) (string, error) {
			return d.Script(ctx, command, body, keys, args)
		}, reply)
		return text, failed(err)
	})
}

// Tracker is a Client that can be told of changed keys.
type Tracker interface {
	Client

	// Dedicate makes a connection, or ends with ctx.
	Dedicate(ctx context.Context) (Dedicated, error)
}

// TrackingConn is the Conn of a Tracker.
type TrackingConn struct {
	*Conn
	tracker Tracker
}

// NewTracking is New for such a client.
func NewTracking(client Tracker, o Options) *TrackingConn {
	return &TrackingConn{New(client, o), client}
}

// Track implements redisstore.Tracker.
func (c *TrackingConn) Track(ctx context.Context, changed func(keys []string), use func(context.Context, redisstore.ScriptRunner) error) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	d, err := c.tracker.Dedicate(ctx)
	if err != nil {
		return c.Failed(err)
	}
	return Track(ctx, d, c.client.Reply, c.Failed, changed, use)
}
