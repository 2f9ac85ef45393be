package etcdstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/pawl-go/pawl/driver"
)

// Open makes a store on the cluster that a URL names, with a client of its own.
// It does no network I/O: a cluster that does not reply shows with the first
// call.
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix]     port 2379, prefix "pawl"
//	etcds://...[?ca=FILE][&cert=FILE&key=FILE]                       the same over TLS
//
// ca is a file of certificates to trust instead of the system's, cert and key
// are the client's own. The user can also be given as ?user=NAME. Errors never
// contain the password. o may be nil; the URL's prefix comes before its Prefix.
func Open(rawURL string, o *Options) (*Store, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w etcd URL: %w", driver.ErrInvalid, err)
	}
	if t.prefix != "" {
		o = &Options{Prefix: t.prefix}
	}
	config := clientv3.Config{
		Endpoints: t.endpoints, TLS: t.tls,
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		MaxUnaryRetries: 8, DialOptions: slices.Clone(dialOptions),
		Logger: zap.NewNop(), // errors are returned, not logged
	}
	if t.user != "" {
		config.DialOptions = append(config.DialOptions, newLogin(t.user, t.password).options()...)
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("%w etcd URL: %w", driver.ErrInvalid, err)
	}
	s, err := newStore(client, func() error { return disconnect(client.Close, client.ActiveConnection()) }, o)
	if err != nil {
		client.Close()
	}
	return s, err
}

// disconnect closes a client, and waits for that only so long.
//
// If the cluster refuses a watch in the moment in which the client closes, Close does not
// return: its watcher waits for a goroutine of its own that wants to tell it of the watch
// (v3.6.16, watchGRPCStream.run).
func disconnect(closeClient func() error, conn io.Closer) error {
	closed := make(chan error, 1)
	go func() { closed <- closeClient() }()
	t := time.NewTimer(2 * time.Second)
	defer t.Stop()
	select {
	case err := <-closed:
		return err
	case <-t.C:
		return conn.Close()
	}
}

// By themselves, calls to a cluster that is not there end with their context
// alone, without a word why; and after a long outage a connection is tried every
// other minute.
var dialOptions = []grpc.DialOption{
	grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
	}),
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 5 * time.Second,
	}),
}

type target struct {
	endpoints      []string
	user, password string
	prefix         string
	tls            *tls.Config
}

// parse reads a URL; its errors never show the password.
func parse(rawURL string) (*target, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	if scheme != "etcd" && scheme != "etcds" {
		if strings.Contains(scheme, "@") || len(scheme) > 20 {
			scheme = "…"
		}
		return nil, fmt.Errorf("scheme %q: there are etcd and etcds", scheme)
	}
	// The parser of URLs knows one host only.
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	hosts := authority[strings.LastIndex(authority, "@")+1:]
	u, err := url.Parse(scheme + "://" + strings.TrimSuffix(authority, hosts) + "host" + rest[len(authority):])
	if err != nil {
		return nil, errors.New("it cannot be read; in user and password, write other than letters and digits as %XX")
	}
	t := &target{user: u.User.Username(), prefix: strings.Trim(u.Path, "/")}
	t.password, _ = u.User.Password()
	if u.Fragment != "" {
		return nil, errors.New("#…: write # in user and password as %23")
	}
	if t.prefix != "" {
		if err := checkPrefix(t.prefix); err != nil {
			return nil, err
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		endpoint, err := endpointOf(host)
		if err != nil {
			return nil, err
		}
		if scheme == "etcds" {
			endpoint = "https://" + endpoint
		} else {
			endpoint = "http://" + endpoint
		}
		t.endpoints = append(t.endpoints, endpoint)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters cannot be read")
	}
	return t, t.parameters(scheme, q)
}

func endpointOf(host string) (string, error) {
	name, port := host, "2379"
	if h, p, err := net.SplitHostPort(host); err == nil {
		name, port = h, p
	} else if strings.Contains(strings.TrimSuffix(host[strings.LastIndex(host, "]")+1:], ""), ":") {
		return "", fmt.Errorf("host %q: write host:port, and IPv6 addresses in brackets", host)
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if name == "" || port == "" {
		return "", errors.New("no host: write etcd://host[:port][,host[:port]...][/prefix]")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("host %q: port %q: allowed are 1 to 65535", host, port)
	}
	return net.JoinHostPort(name, port), nil
}

func (t *target) parameters(scheme string, q url.Values) error {
	known := map[string]*string{"user": &t.user}
	var ca, cert, key string
	if scheme == "etcds" {
		known["ca"], known["cert"], known["key"] = &ca, &cert, &key
	}
	for name, values := range q {
		into := known[name]
		switch {
		case into == nil && scheme == "etcd":
			return fmt.Errorf("parameter %q: there is user, and with etcds ca, cert and key", name)
		case into == nil:
			return fmt.Errorf("parameter %q: there are user, ca, cert and key", name)
		case len(values) != 1 || values[0] == "":
			return fmt.Errorf("parameter %q: it needs one value", name)
		case *into != "":
			return fmt.Errorf("parameter %q: it is given before the host already", name)
		}
		*into = values[0]
	}
	if (t.user == "") != (t.password == "") {
		return errors.New("user and password: one is given without the other")
	}
	if scheme == "etcds" {
		return t.secure(ca, cert, key)
	}
	return nil
}

func (t *target) secure(ca, cert, key string) error {
	t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("parameter ca: %w", err)
		}
		t.tls.RootCAs = x509.NewCertPool()
		if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter ca: %s has no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("parameters cert and key: one is given without the other")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("parameters cert and key: %w", err)
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}
