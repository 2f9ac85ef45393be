// Package rueidis makes a store for pawl of a rueidis client, or of a URL.
package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// New makes a store on a client, which stays the caller's: closing the store
// does not close it. o may be nil.
//
// The client must talk to one server, also by way of Sentinel: one of a
// cluster is an error that is driver.ErrUnsupported, and so is the first call
// where the server turns out to be part of one. Its settings decide how
// soon a dead connection is noticed (Dialer.KeepAlive, ConnWriteTimeout). Calls
// end with their context all the same; one that is cancelled in the moment in
// which the server stops replying, up to four seconds later. If a server becomes a
// replica while the client is connected, the client's way to the new primary is
// its own affair (Sentinel); see Open for the other case.
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
	if client.Mode() == rueidis.ClientModeCluster {
		return nil, fmt.Errorf("redis: client of a cluster, which is not supported yet: %w", driver.ErrUnsupported)
	}
	return newConn(client, nil, nil, func() {}), nil
}

// Open makes a store on the server that a URL names, with a client of its own.
// It does no I/O: a server that does not reply, or is part of a cluster, shows
// with the first call. If the server turns out to be a replica, the client connects
// anew, for its name may lead to the new primary by then.
//
//	redis://[user[:password]@]host[:port][/db]     port 6379, db 0
//	rediss://[user[:password]@]host[:port][/db]    the same over TLS
//	unix://[user[:password]@]/path/to/socket[?db=N]
func Open(rawURL string, o *redisstore.Options) (*redisstore.Store, error) {
	c, err := open(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := redisstore.New(c, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

func open(rawURL string) (*conn, error) {
	opt, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	opt.DisableCache = true      // claims are never cached; works with RESP2 as well
	opt.ForceSingleClient = true // a cluster is refused, not used
	// NewClient connects, and fails if it can't, unless told to be lazy like
	// this: its first attempt gets nowhere.
	var late atomic.Bool
	dial, conns := opt.DialCtxFn, new(dialed)
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		if !late.Load() {
			return nil, errors.New("not yet")
		}
		c, err := dial(ctx, addr, d, t)
		if err != nil {
			return nil, err
		}
		return conns.track(c), nil
	}
	client, err := rueidis.NewClient(opt)
	if client == nil {
		return nil, fmt.Errorf("redis: client for %s: %w", opt.InitAddress[0], err)
	}
	late.Store(true)
	to := &target{addr: opt.InitAddress[0]}
	if opt.SelectDB != 0 {
		to.db = fmt.Sprintf("/%d", opt.SelectDB)
		if strings.HasPrefix(to.addr, "/") {
			to.db = fmt.Sprintf("?db=%d", opt.SelectDB)
		}
	}
	return newConn(client, to, conns, client.Close), nil
}

// parse reads a URL; its errors never show the password.
func parse(rawURL string) (rueidis.ClientOption, error) {
	var opt rueidis.ClientOption
	fail := func(format string, a ...any) (rueidis.ClientOption, error) {
		return opt, fmt.Errorf("%w redis URL: %s", driver.ErrInvalid, fmt.Sprintf(format, a...))
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // e itself quotes the URL
		}
		if strings.Contains(rawURL, "@") {
			return fail("it cannot be read; in user and password, write other than letters and digits as %%XX")
		}
		return fail("%v", err)
	}
	opt.Username = u.User.Username()
	opt.Password, _ = u.User.Password()
	db, allowed := "", []string{}
	switch u.Scheme {
	case "redis", "rediss":
		if u.Opaque != "" || u.Hostname() == "" {
			return fail("no host: write %s://host[:port][/db]", u.Scheme)
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		opt.InitAddress = []string{net.JoinHostPort(u.Hostname(), port)}
		if u.Scheme == "rediss" {
			opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
		}
		opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
			if t != nil {
				return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
			}
			return d.DialContext(ctx, "tcp", addr)
		}
		db = strings.TrimPrefix(u.Path, "/")
	case "unix":
		if u.Host != "" || u.Path == "" || u.Path == "/" {
			return fail("no socket: write unix:///path/to/socket[?db=N]")
		}
		opt.InitAddress = []string{u.Path}
		opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", addr)
		}
		db, allowed = u.Query().Get("db"), []string{"db"}
	default:
		return fail("scheme %q: there are redis, rediss and unix", u.Scheme)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail("parameters: %v", err)
	}
	for _, name := range allowed {
		q.Del(name)
	}
	for name := range q {
		if len(allowed) == 0 {
			return fail("parameter %q: %s URLs have none", name, u.Scheme)
		}
		return fail("parameter %q: there are %s", name, strings.Join(allowed, ", "))
	}
	if u.Fragment != "" {
		return fail("#%s: write # in user and password as %%23", "…")
	}
	if db != "" {
		if opt.SelectDB, err = strconv.Atoi(db); err != nil || opt.SelectDB < 0 {
			return fail("database %q: it is a number from 0", db)
		}
	}
	return opt, nil
}
