// Package goredis makes a store for pawl of a go-redis client.
package goredis

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// New makes a store on a client, which stays the caller's: closing the store
// does not close it. o may be nil.
//
// The client is a *redis.Client, made by redis.NewClient or, for Sentinel, by
// redis.NewFailoverClient, or a *redis.ClusterClient, which must have a ReadTimeout. A
// *redis.Ring is an error that is driver.ErrUnsupported: it sends a name to whichever of
// its servers is up, and two could hold the same lock when one fails or comes back. So is
// the first call of a *redis.Client whose server turns out to be part of a cluster.
//
// A client of a cluster asks for COMMAND, with each call again if its user must not: give that
// right (+command), or set DisableRoutingPolicies.
//
// On a cluster whose scripts may not publish to the channel of another slot, who waits
// learns by its heartbeat: this client has no connection that sharded channels share.
//
// Whatever the client's MaxRetries, no request is sent again after a fault. Calls
// end with their context, whatever ContextTimeoutEnabled says; what the client has
// begun then ends by its ReadTimeout, or after 10 s where it has none, and keeps
// one of its connections until then.
func New(client redis.UniversalClient, o *redisstore.Options) (*redisstore.Store, error) {
	c, err := NewConn(client)
	if err != nil {
		return nil, err
	}
	return redisstore.New(c, o)
}

// NewConn is the adapter alone, for those who put something between it and
// [redisstore.New].
func NewConn(client redis.UniversalClient) (redisstore.Conn, error) {
	o := adapter.Options{ErrClosed: redis.ErrClosed}
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			return adapter.New(&single{bounded(c)}, o), nil
		}
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		if t := c.Options().ReadTimeout; t <= 0 {
			return nil, fmt.Errorf("%w client of a cluster: its ReadTimeout is %v, so that it waits for a reply for ever: allowed are 1ms and more", driver.ErrInvalid, t)
		}
		o.Cluster = true
		return adapter.New(&cluster{c}, o), nil
	case *redis.Ring:
		return nil, fmt.Errorf("redis: a Ring sends a name to whichever of its servers is up, "+
			"so that two could hold the same lock when one fails or comes back: %w", driver.ErrUnsupported)
	case nil:
	default:
		return nil, fmt.Errorf("%w redis client of type %T: it is a *redis.Client or a *redis.ClusterClient", driver.ErrInvalid, client)
	}
	return nil, fmt.Errorf("%w redis client: it is nil", driver.ErrInvalid)
}

// readTimeout is for clients that wait for a reply for ever.
const readTimeout = 10 * time.Second

// bounded returns the client, or one with the same connections that waits for a
// reply for so long only.
func bounded(c *redis.Client) *redis.Client {
	if c.Options().ReadTimeout > 0 {
		return c
	}
	return c.WithTimeout(readTimeout)
}
