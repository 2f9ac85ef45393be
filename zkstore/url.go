package zkstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// Open makes a store on the servers that a URL names:
//
//	zk://[user:password@]host[:port][,host[:port]…][/root]
//
// The port is 2181 if none is given, the root /pawl. User and password are for
// ZooKeeper's digest scheme; the nodes are then made for that user alone,
// unless o.ACL says otherwise. Open does no I/O: a server that does not reply
// shows with the first call. Errors never show the password. o may be nil.
func Open(rawURL string, o *Options) (*Store, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	servers, err := parse(rawURL, &opts)
	if err != nil {
		return nil, err
	}
	return New(servers, &opts)
}

func parse(rawURL string, o *Options) ([]string, error) {
	fail := func(format string, a ...any) ([]string, error) {
		return nil, fmt.Errorf("%w zookeeper URL: %s", driver.ErrInvalid, fmt.Sprintf(format, a...))
	}
	rest, ok := strings.CutPrefix(rawURL, "zk://")
	if !ok {
		return fail("it does not begin with zk://")
	}
	if strings.ContainsAny(rest, "#") {
		return fail("it has a fragment; write %%23 for # in user, password and root")
	}
	rest, query, _ := strings.Cut(rest, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return fail("the parameters cannot be read")
	}
	for name := range params {
		return fail("parameter %q is not known; there is none", name)
	}
	// The password may have a slash, if nobody has escaped it; hosts have not.
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		user, password, both := strings.Cut(rest[:at], ":")
		u, err1 := url.PathUnescape(user)
		p, err2 := url.PathUnescape(password)
		if errors.Join(err1, err2) != nil || !both || u == "" {
			return fail("before @ it needs user:password; write other than letters and digits as %%XX")
		}
		o.User, o.Password = u, p
	}
	hosts, root, _ := strings.Cut(rest[at+1:], "/")
	if root = strings.TrimSuffix(root, "/"); root != "" {
		if root, err = url.PathUnescape(root); err != nil {
			return fail("its root cannot be read; write %% as %%25")
		}
		o.Root = "/" + root
	}
	if hosts == "" {
		return fail("no host: write zk://host[:port][,host[:port]…][/root]")
	}
	var servers []string
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host)
		if err != nil {
			return fail("host %q: %v", host, err)
		}
		servers = append(servers, addr)
	}
	return servers, nil
}

// address completes host[:port].
func address(host string) (string, error) {
	u, err := url.Parse("zk://" + host)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Host != host {
		return "", errors.New("it is not host or host:port")
	}
	port := u.Port()
	if port == "" {
		port = "2181"
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "0" {
		return "", fmt.Errorf("port %q is none", port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
