package torture

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

// ports are those of URLs that name none.
var ports = map[string]string{"redis": "6379", "valkey": "6379", "etcd": "2379", "zk": "2181", "postgres": "5432", "postgresql": "5432", "mysql": "3306"}

// onConnections are the faults that need a proxy.
var onConnections = []string{"cut", "slow", "dark"}

// route is how a URL is led through proxies.
type route struct {
	u       *url.URL
	network string
	targets []string // one proxy each
	// through returns the URL with the proxies' addresses, in the order of targets, in
	// the place of the targets.
	through func(addrs []string) string
	// apart: the targets are servers that do not know of each other, and each is hurt by itself.
	apart bool
	// socket is what the socket of a proxy is called; empty: a port.
	socket string
}

// newRoute finds the connections that a URL leads to. It is nil for a store that has
// none. The error says why they can't be led through a proxy.
func newRoute(raw string) (*route, error) {
	u, err := storeurl.Parse(raw)
	if err != nil {
		return nil, err
	}
	cannot := func(why string) (*route, error) {
		return nil, fmt.Errorf("cut, slow and dark go through a proxy, but %s: choose --faults kill,pause,late, or give another URL", why)
	}
	q := u.Query()
	r := &route{u: u, network: "tcp"}
	switch u.Scheme {
	case "file":
		return nil, nil
	case storeurl.Quorum:
		return r.byNode()
	case "redis", "valkey":
		if q.Has("addr") || q.Has("master_set") || q.Has("master_name") {
			return cannot("what the URL names tells where the servers are")
		}
	case "redis+sentinel", "redis+cluster", "rediss+sentinel", "rediss+cluster":
		return cannot("what a " + u.Scheme + ":// URL names tells where the servers are")
	case "rediss", "valkeys", "etcds":
		return cannot(u.Scheme + ":// is TLS, which expects the server's own name")
	case "unix":
		r.byPath(u.Path, func(path string) string { v := *u; v.Path = path; return v.String() })
		return r, nil
	case "mysql":
		if tls := q.Get("tls"); !slices.Contains([]string{"", "false", "skip-verify", "preferred"}, tls) {
			return cannot("tls=" + tls + " expects the server's own name")
		}
		if socket := q.Get("socket"); socket != "" {
			r.byPath(socket, func(path string) string { return r.with("socket", path) })
			return r, nil
		}
	case "postgres", "postgresql":
		if q.Get("sslmode") == "verify-full" {
			return cannot("sslmode=verify-full expects the server's own name")
		}
		if u.Host == "" || q.Has("host") || q.Has("port") || q.Has("service") {
			dir := q.Get("host")
			if !filepath.IsAbs(dir) || u.Host != "" || q.Has("service") {
				return cannot("the URL has no host and port of its own")
			}
			name := ".s.PGSQL." + cmp.Or(q.Get("port"), ports["postgres"])
			r.byPath(filepath.Join(dir, name), func(path string) string { return r.with("host", filepath.Dir(path)) })
			r.socket = name
			return r, nil
		}
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		h := url.URL{Host: host}
		r.targets = append(r.targets, net.JoinHostPort(h.Hostname(), cmp.Or(h.Port(), ports[u.Scheme])))
	}
	r.through = func(addrs []string) string {
		v := *u
		v.Host = strings.Join(addrs, ",")
		return v.String()
	}
	return r, nil
}

// byNode leads to each server of a quorum through a proxy of its own.
func (r *route) byNode() (*route, error) {
	nodes := storeurl.Nodes(r.u)
	for _, raw := range nodes {
		u, err := storeurl.Parse(raw)
		if err != nil {
			return nil, err
		}
		if u.Scheme != "redis" {
			return nil, fmt.Errorf("cut, slow and dark go through a proxy for each server, which must be redis://, not %s://: choose --faults kill,pause,late", u.Scheme)
		}
		r.targets = append(r.targets, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports["redis"])))
	}
	r.apart = true
	r.through = func(addrs []string) string {
		var through []string
		for i, raw := range nodes {
			u, err := storeurl.Parse(raw)
			if err != nil {
				return r.u.String() // it was read above
			}
			u.Host = addrs[i]
			through = append(through, u.String())
		}
		return storeurl.Quorum + ":" + strings.Join(through, ",")
	}
	return r, nil
}

func (r *route) byPath(path string, through func(string) string) {
	r.network, r.targets, r.socket = "unix", []string{path}, "socket"
	r.through = func(addrs []string) string { return through(addrs[0]) }
}

func (r *route) with(param, value string) string {
	v := *r.u
	q := v.Query()
	q.Set(param, value)
	v.RawQuery = q.Encode()
	return v.String()
}

// proxies are those of one process.
type proxies struct {
	url string // of the store, behind them
	all []*proxy
	dir string // of their sockets
}

func (r *route) open() (_ *proxies, err error) {
	ps := &proxies{}
	defer func() {
		if err != nil {
			ps.close()
		}
	}()
	path := ""
	if r.socket != "" {
		if ps.dir, err = os.MkdirTemp("", "pawl-torture-"); err != nil {
			return nil, fmt.Errorf("make a folder for the sockets of proxies: %w", err)
		}
		path = filepath.Join(ps.dir, r.socket)
	}
	var addrs []string
	for _, target := range r.targets {
		p, err := newProxy(r.network, target, path)
		if err != nil {
			return nil, err
		}
		ps.all = append(ps.all, p)
		addrs = append(addrs, p.addr())
	}
	ps.url = r.through(addrs)
	return ps, nil
}

// set brings trouble to those that in names.
func (ps *proxies) set(in *injury, t trouble) {
	for i, p := range ps.all {
		if in.hits(i) {
			p.set(t)
		}
	}
}

func (ps *proxies) cut(in *injury) {
	for i, p := range ps.all {
		if in.hits(i) {
			p.cut(in.reset)
		}
	}
}

func (ps *proxies) close() {
	for _, p := range ps.all {
		p.close()
	}
	if ps.dir != "" {
		os.RemoveAll(ps.dir)
	}
}
