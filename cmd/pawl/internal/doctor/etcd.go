//go:build !folder

package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func (e *exam) etcd(ctx context.Context) bool {
	cfg, err := e.etcdConfig()
	if err != nil {
		return e.unreachable(err, "")
	}
	c, err := clientv3.New(cfg) // which logs in
	if err != nil {
		return e.unreachable(cmp.Or(e.etcdDial(ctx), err), etcdRemedy(err))
	}
	defer c.Close()

	get := func(ctx context.Context) error {
		_, err := c.Get(ctx, "pawl/doctor/probe", clientv3.WithCountOnly())
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			return nil // it was asked all the same
		}
		return err
	}
	first, cancel := context.WithTimeout(ctx, step)
	err = get(first)
	cancel()
	if err != nil {
		return e.unreachable(cmp.Or(e.etcdDial(ctx), err), etcdRemedy(err))
	}
	e.etcdMembers(ctx, c)
	e.roundTrip(ctx, get)
	e.ok("clock", "etcd tells no time: it counts down leases, and pawl's tokens come from its revisions")
	e.etcdAlarms(ctx, c)
	return true
}

// etcdDial returns why no address of the URL can be connected to; nil if one
// can. The client does not tell.
func (e *exam) etcdDial(ctx context.Context) error {
	var errs []error
	for host := range strings.SplitSeq(e.url.Host, ",") {
		c, err := (&net.Dialer{Timeout: step}).DialContext(ctx, "tcp", withPort(host, "2379"))
		if err == nil {
			c.Close()
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// etcdMembers looks at each address of the URL.
func (e *exam) etcdMembers(ctx context.Context, c *clientv3.Client) {
	size, quota := int64(0), int64(0)
	for _, endpoint := range c.Endpoints() {
		_, addr, _ := strings.Cut(endpoint, "://")
		asked, cancel := context.WithTimeout(ctx, step)
		st, err := c.Status(asked, endpoint)
		cancel()
		if err != nil {
			e.warn("member "+addr, "is it running? etcdctl endpoint status", "%s", brief(err))
			continue
		}
		if e.Version == "" {
			e.Version = st.Version
			e.ok("reachable", "etcd %s", st.Version)
			if !atLeast(st.Version, 3, 4) {
				e.fail("version", "use 3.4 or later", "%s is too old", st.Version)
			}
		}
		switch {
		case st.Leader == 0:
			e.fail("member "+addr, "etcdctl endpoint status --cluster: more than half of the members must run and reach each other", "it knows no leader: nothing can be written")
		case st.IsLearner:
			e.warn("member "+addr, "use the addresses of voting members", "it is a learner, and refuses most requests")
		}
		size, quota = max(size, st.DbSize), max(quota, st.DbSizeQuota)
	}
	if e.Version == "" {
		e.note("reachable", "etcd; it does not let this user ask for its status")
		return
	}
	const do = "compact and defragment (etcdctl compact, defrag), or raise --quota-backend-bytes"
	unless := ""
	if quota == 0 { // before 3.6 it does not tell
		quota, unless = 2<<30, ", unless --quota-backend-bytes sets another limit"
	}
	if size > quota*8/10 {
		e.warn("quota", do, "%d of %d MB are used%s: beyond that no lock can be taken", size>>20, quota>>20, unless)
	} else {
		e.ok("quota", "%d of %d MB used%s", size>>20, quota>>20, unless)
	}
}

func (e *exam) etcdAlarms(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	if list, err := c.MemberList(ctx); err == nil {
		voters := 0
		for _, m := range list.Members {
			if !m.IsLearner {
				voters++
			}
		}
		switch {
		case voters == 1:
			e.note("cluster", "one member: while it is down no lock can be taken or renewed")
		default:
			e.ok("cluster", "%d members: %d may be down", voters, (voters-1)/2)
		}
	}
	res, err := c.AlarmList(ctx)
	if err != nil {
		e.note("alarms", "they can't be read: %s", brief(err))
		return
	}
	kinds := make([]string, 0, len(res.Alarms))
	for _, a := range res.Alarms {
		kinds = append(kinds, a.Alarm.String())
	}
	switch {
	case len(kinds) == 0:
		e.ok("alarms", "none")
	case slices.Contains(kinds, pb.AlarmType_CORRUPT.String()):
		e.fail("alarms", "see etcd's guide to data corruption; the member that differs must be replaced", "CORRUPT: its members have different data")
	default:
		e.fail("alarms", makeRoom, "%s: no lock can be taken", strings.Join(kinds, ", "))
	}
}

func etcdRemedy(err error) string {
	err = rpctypes.Error(err) // from New it comes raw
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "give user and password in PAWL_STORE"
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "check user and password; special characters are written %XX"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "etcdctl role grant-permission ROLE readwrite --prefix=true pawl/"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return makeRoom
	}
	return ""
}

const makeRoom = "compact, defragment, raise --quota-backend-bytes, then etcdctl alarm disarm"

// brief is what an error of gRPC says.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no reply within " + step.String()
	}
	_, text, ok := strings.Cut(err.Error(), "desc = ")
	if !ok {
		return err.Error()
	}
	return text
}

// etcdConfig is what the store makes of the URL, which it has checked.
func (e *exam) etcdConfig() (clientv3.Config, error) {
	params := e.url.Query()
	cfg := clientv3.Config{Username: e.url.User.Username(), DialTimeout: step, Logger: zap.NewNop()}
	cfg.Password, _ = e.url.User.Password()
	if user := params.Get("user"); user != "" {
		cfg.Username = user
	}
	scheme := "http://"
	if e.url.Scheme == "etcds" {
		var err error
		scheme = "https://"
		if cfg.TLS, err = etcdTLS(params); err != nil {
			return cfg, err
		}
	}
	for host := range strings.SplitSeq(e.url.Host, ",") {
		cfg.Endpoints = append(cfg.Endpoints, scheme+withPort(host, "2379"))
	}
	return cfg, nil
}

func etcdTLS(params url.Values) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := params.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AppendCertsFromPEM(pem)
	}
	if file := params.Get("cert"); file != "" {
		pair, err := tls.LoadX509KeyPair(file, params.Get("key"))
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
