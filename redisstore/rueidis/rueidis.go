// Package rueidis makes a store for pawl of a rueidis client, or of a URL.
package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore"
)

// New makes a store on a client, which stays the caller's: closing the store
// does not close it. o may be nil.
//
// The client may talk to one server, to the primary that Sentinels name, or to a
// cluster: that is, what its Mode returns. A client of one server that turns out to be
// one of a cluster is refused with the first call, by a [redisstore.ClusterError]. The
// client's settings decide how soon a dead connection is noticed (Dialer.KeepAlive,
// ConnWriteTimeout), and how soon it learns of another primary, if it has missed the
// event (Sentinel.TopologyRefreshInterval, ClusterOption.ShardsRefreshInterval; both
// are off by default). Calls end with their context all the same; one that is cancelled
// in the moment in which the server stops replying, up to four seconds later.
func New(client rueidis.Client, o *redisstore.Options) (*redisstore.Store, error) {
	c, err := NewConn(client)
	if err != nil {
		return nil, err
	}
	return redisstore.New(c, o)
}

// NewConn is the adapter alone, for those who put something between it and
// [redisstore.New].
func NewConn(client rueidis.Client) (redisstore.Conn, error) {
	return newConn(have(client, func() {}), client.Mode() == rueidis.ClientModeCluster, nil, nil), nil
}

// Open makes a store on the servers that a URL names, with a client of its own.
// It does no I/O, but reads the files of certificates: a server that does not reply
// shows with the first call. If one server turns out to be a replica, the client
// connects anew, for its name may lead to the new primary by then.
//
//	redis://[user[:password]@]host[:port][/db]                    port 6379, db 0
//	unix://[user[:password]@]/path/to/socket
//	redis+sentinel://[user[:password]@]host[:port][,host...]/NAME[/db]   the primary NAME; port 26379
//	redis+cluster://[user[:password]@]host[:port][,host...]       port 6379
//
// With rediss for redis it is over TLS; valkey and valkeys are understood, too. The forms of
// rueidis and go-redis mean the same: redis://host?master_set=NAME (or master_name) is a
// Sentinel's, redis://host?addr=host2&addr=host3 that of a cluster, or of more Sentinels.
// User and password are those of the servers that keep the locks. Parameters:
//
//	db                                   number of the database; not of a cluster
//	dial_timeout                         3s, or a number of seconds
//	read_timeout, write_timeout          the longer counts for both
//	replicas                             Options.Replicas, unless that is set
//	client_name, protocol                as CLIENT LIST shows it; 2 or 3
//	sentinel_username, sentinel_password of the Sentinels
//	ca, cert, key, server_name           over TLS: files in PEM; the name in the certificate
//	skip_verify                          over TLS: any certificate will do; for trying out
func Open(rawURL string, o *redisstore.Options) (*redisstore.Store, error) {
	c, err := open(rawURL)
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = new(redisstore.Options)
	}
	if o.Replicas == 0 {
		own := *o
		own.Replicas, o = c.opened.replicas, &own
	}
	s, err := redisstore.New(c, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

func open(rawURL string) (*conn, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	conns := new(dialed)
	opt := t.opt
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		n, err := t.opt.DialCtxFn(ctx, addr, d, c)
		if err != nil {
			return nil, err
		}
		return conns.track(n), nil
	}
	if opt.ForceSingleClient {
		return openSingle(opt, t, conns)
	}
	opt.DisableRetry = true // so that a subscription ends with its connection
	from := &source{make: func() (rueidis.Client, error) { return rueidis.NewClient(opt) }}
	return newConn(from, t.cluster(), t, conns), nil
}

// openSingle makes the client at once. NewClient connects, and fails if it can't, unless
// told to be lazy like this: its first attempt gets nowhere.
func openSingle(opt rueidis.ClientOption, t *target, conns *dialed) (*conn, error) {
	var late atomic.Bool
	dial := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if !late.Load() {
			return nil, errors.New("not yet")
		}
		return dial(ctx, addr, d, c)
	}
	client, err := rueidis.NewClient(opt)
	if client == nil {
		return nil, fmt.Errorf("redis: client for %s: %w", t.addr, err)
	}
	late.Store(true)
	return newConn(have(client, client.Close), false, t, conns), nil
}
