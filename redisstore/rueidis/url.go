package rueidis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
)

// Schemes are those that [Open] knows. With valkey for redis they mean the same.
var schemes = []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix"}

// target is what a URL names.
type target struct {
	opt      rueidis.ClientOption
	addr     string // hosts and ports, or a socket's path: without user and password
	db       string // as the URL ends: "/3", or "" for the first database
	replicas int
}

func (t *target) sentinel() bool { return t.opt.Sentinel.MasterSet != "" }

// cluster reports whether the URL is that of a cluster.
func (t *target) cluster() bool { return !t.sentinel() && !t.opt.ForceSingleClient }

// ParseURL returns the options of the client that [Open] or [OpenPlain] would make, for those who
// want to change them, or to ask the servers themselves. Its errors never show the
// password, and are [driver.ErrInvalid]. Certificates are read from their files.
func ParseURL(rawURL string) (rueidis.ClientOption, error) {
	rest, _, err := plainOptions(rawURL, nil)
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("%w redis URL: %w", driver.ErrInvalid, err)
	}
	t, err := parse(rest)
	if err != nil {
		return rueidis.ClientOption{}, err
	}
	return t.opt, nil
}

func parse(rawURL string) (*target, error) {
	t, err := parseTarget(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w redis URL: %w", driver.ErrInvalid, err)
	}
	return t, nil
}

func parseTarget(rawURL string) (*target, error) {
	u, hosts, err := split(rawURL)
	if err != nil {
		return nil, err
	}
	scheme := strings.Replace(u.Scheme, "valkey", "redis", 1)
	if !slices.Contains(schemes, scheme) {
		return nil, fmt.Errorf("scheme %q: there are %s", u.Scheme, strings.Join(schemes, ", "))
	}
	if u.Fragment != "" {
		return nil, errors.New("#…: write # in user and password as %23")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	t := new(target)
	t.opt.Username = u.User.Username()
	t.opt.Password, _ = u.User.Password()
	t.opt.DisableCache = true // claims are never cached; works with RESP2 as well
	p := params{given: q}
	if scheme == "unix" {
		err = t.socket(u, &p)
	} else {
		err = t.servers(scheme, u, hosts, &p)
	}
	if err != nil {
		return nil, err
	}
	t.common(&p)
	t.opt.DialCtxFn = dialer(scheme == "unix")
	return t, p.end(u.Scheme)
}

var errUnreadable = errors.New("it cannot be read; in user and password, write other than letters and digits as %XX")

// split is url.Parse, which knows one host only, for a list of them.
func split(rawURL string) (u *url.URL, hosts []string, err error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found {
		scheme, rest, _ = strings.Cut(rawURL, ":")
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	list := authority[strings.LastIndex(authority, "@")+1:]
	one := rawURL
	if found && strings.Contains(list, ",") {
		one = scheme + "://" + strings.TrimSuffix(authority, list) + "list" + rest[len(authority):]
	}
	u, err = url.Parse(one)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // e itself quotes the URL
		}
		if strings.Contains(rawURL, "@") {
			return nil, nil, errUnreadable
		}
		return nil, nil, err
	}
	// What follows the @ is the host: this one stands behind a / or ? of the password.
	if u.User == nil && strings.Contains(rest[len(authority):], "@") && u.Scheme != "unix" {
		return nil, nil, errUnreadable
	}
	if one == rawURL {
		list = u.Host
	}
	if !found && u.Scheme != "" && slices.Contains(schemes, u.Scheme) {
		list = ""
	}
	return u, strings.Split(list, ","), nil
}

// socket reads unix:///path.
func (t *target) socket(u *url.URL, p *params) error {
	if u.Host != "" || u.Path == "" || u.Path == "/" {
		return errors.New("no socket: write unix:///path/to/socket[?db=N]")
	}
	t.addr, t.opt.InitAddress = u.Path, []string{u.Path}
	t.opt.ForceSingleClient = true
	if t.database(p.one("db"), p); t.opt.SelectDB != 0 {
		t.db = fmt.Sprintf("?db=%d", t.opt.SelectDB)
	}
	return nil
}

// servers reads the URLs of hosts.
func (t *target) servers(scheme string, u *url.URL, hosts []string, p *params) error {
	kind, secure := "", strings.HasPrefix(scheme, "rediss")
	if _, after, ok := strings.Cut(scheme, "+"); ok {
		kind = after
	}
	db, master := strings.TrimPrefix(u.Path, "/"), ""
	if kind == "" {
		if len(hosts) > 1 {
			return errors.New("one host only: write redis+cluster://host,host or redis+sentinel://host,host/NAME for more")
		}
		hosts = append(hosts, p.all("addr")...)
		switch master = p.either("master_set", "master_name"); {
		case master != "":
			kind = "sentinel"
		case len(hosts) > 1:
			kind = "cluster"
		}
	} else if kind == "sentinel" {
		if master, db, _ = strings.Cut(db, "/"); master == "" {
			return fmt.Errorf("no name of the primary: write %s://host[:port][,host...]/NAME[/db]", u.Scheme)
		}
	}
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	for _, host := range hosts {
		addr, err := address(host, port)
		if err != nil {
			return fmt.Errorf("%w: write %s", err, forms[kind](u.Scheme))
		}
		t.opt.InitAddress = append(t.opt.InitAddress, addr)
	}
	t.addr = strings.Join(t.opt.InitAddress, ",")
	if secure {
		t.secure(p)
	}
	t.database(cmp.Or(db, p.one("db")), p)
	switch kind {
	case "sentinel":
		t.watched(master, p)
	case "cluster":
		if t.opt.SelectDB != 0 {
			return fmt.Errorf("database %d: a cluster has database 0 only", t.opt.SelectDB)
		}
		// Also when nothing fails, for a server that is stopped closes no connection.
		t.opt.ClusterOption.ShardsRefreshInterval = refreshed
		t.opt.ClusterOption.MaxMovedRedirections = 16
	default:
		t.opt.ForceSingleClient = true
	}
	if t.opt.SelectDB != 0 {
		t.db = fmt.Sprintf("/%d", t.opt.SelectDB)
	}
	return nil
}

// refreshed is how often the client asks again which servers there are.
const refreshed = 2 * time.Second

var forms = map[string]func(scheme string) string{
	"":         func(s string) string { return s + "://host[:port][/db]" },
	"sentinel": func(s string) string { return s + "://host[:port][,host...]/NAME[/db]" },
	"cluster":  func(s string) string { return s + "://host[:port][,host...]" },
}

// watched sets up the way by Sentinels to the primary of that name.
func (t *target) watched(master string, p *params) {
	s := &t.opt.Sentinel
	s.MasterSet = master
	s.Username, s.Password = p.one("sentinel_username"), p.one("sentinel_password")
	s.TLSConfig = t.opt.TLSConfig
	// A client that has missed the event of a failover would stay with the old primary.
	s.TopologyRefreshInterval = refreshed
	t.addr = master + " of the Sentinels " + t.addr
}

// address completes a host by its port.
func address(host, port string) (string, error) {
	u, err := url.Parse("//" + host)
	switch {
	case err != nil || u.User != nil || u.Path != "" || u.RawQuery != "",
		strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(host, "["):
		return "", errors.New("a host or its port cannot be read")
	case u.Hostname() == "":
		return "", errors.New("no host")
	case u.Port() != "":
		port = u.Port()
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("port %s, where 1 to 65535 are allowed", port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func (t *target) database(text string, p *params) {
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		p.fail(fmt.Errorf("database %q: it is a number from 0", text))
		return
	}
	t.opt.SelectDB = n
}

// common reads the parameters that all URLs have.
func (t *target) common(p *params) {
	if d := p.duration("dial_timeout"); d > 0 {
		t.opt.Dialer.Timeout, t.opt.Sentinel.Dialer.Timeout = d, d
	}
	// The client has one limit for both.
	t.opt.ConnWriteTimeout = max(p.duration("read_timeout"), p.duration("write_timeout"))
	t.opt.ClientName = p.one("client_name")
	switch v := p.one("protocol"); v {
	case "2":
		t.opt.AlwaysRESP2 = true
	case "", "3":
	default:
		p.fail(fmt.Errorf("parameter protocol: %q, where 2 and 3 are allowed", v))
	}
	if v := p.one("replicas"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			p.fail(fmt.Errorf("parameter replicas: %q: it is a number from 0", v))
		}
		t.replicas = n
	}
}

// dialer returns what opens a connection.
func dialer(socket bool) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	if socket {
		return func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", addr)
		}
	}
	return func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		if t != nil {
			return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
		}
		return d.DialContext(ctx, "tcp", addr)
	}
}
