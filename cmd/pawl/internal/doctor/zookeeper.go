//go:build !folder

package doctor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

func (e *exam) zookeeper(ctx context.Context) bool {
	if !e.zkServers(ctx) {
		return false
	}
	c, events, err := zk.Connect(e.zkHosts(), e.ttl, zk.WithLogger(silent{}))
	if err != nil {
		return e.unreachable(err, "")
	}
	defer c.Close()
	connected, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	for state := zk.StateUnknown; state != zk.StateHasSession; {
		select {
		case ev := <-events:
			state = ev.State
		case <-connected.Done():
			return e.unreachable(connected.Err(), "")
		}
	}
	password, _ := e.url.User.Password()
	acl := zk.WorldACL(zk.PermAll)
	if user := e.url.User.Username(); user != "" {
		if err := c.AddAuth("digest", []byte(user+":"+password)); err != nil {
			return e.unreachable(err, "check user and password")
		}
		acl = zk.AuthACL(zk.PermAll)
	}
	if !e.roundTrip(ctx, func(context.Context) error {
		_, _, err := c.Exists("/")
		return err
	}) {
		return true
	}
	e.clock(ctx, func(context.Context) (time.Time, error) { return zkTime(c, e.zkRoot(), acl) })
	return true
}

// zkTime makes a node, and returns when that was by the server's clock.
func zkTime(c *zk.Conn, root string, acl []zk.ACL) (time.Time, error) {
	for i, r := range root + "/" {
		if r == '/' && i > 0 { // as a store makes it
			if _, err := c.Create(root[:i], nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return time.Time{}, fmt.Errorf("create %s: %w", root[:i], err)
			}
		}
	}
	path := root + "/doctor-" + driver.NewID()
	if _, err := c.Create(path, nil, zk.FlagEphemeral, acl); err != nil {
		return time.Time{}, fmt.Errorf("create %s: %w", path, err)
	}
	_, stat, err := c.Exists(path)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(stat.Mtime), c.Delete(path, -1)
}

// zkServers looks at each server of the URL. One that replies is enough.
func (e *exam) zkServers(ctx context.Context) bool {
	const longest = (1<<31 - 1) * time.Millisecond
	var shortest, most zkOffer
	var down []string
	var last error
	up := false
	for _, addr := range e.zkHosts() {
		low, err := zkSession(ctx, addr, time.Millisecond)
		if err != nil {
			last = fmt.Errorf("%s: %w", addr, err)
			down = append(down, last.Error())
			continue
		}
		high, err := zkSession(ctx, addr, longest)
		if err == nil && (!up || high.timeout < most.timeout) {
			most = high
		}
		if !up || low.timeout > shortest.timeout {
			shortest = low
		}
		up = true
		e.zkServer(ctx, addr, low.readOnly)
	}
	if !up {
		do := ""
		if errors.Is(last, errZKCloses) {
			do = "is its ensemble complete, and has this machine fewer connections to it than maxClientCnxns allows, 60 by default?"
		}
		return e.unreachable(last, do)
	}
	for _, text := range down {
		e.warn("member", "is it running? it should be, or not be in the URL", "%s", text)
	}
	e.zkSessions(shortest.timeout, most.timeout)
	return true
}

func (e *exam) zkServer(ctx context.Context, addr string, readOnly bool) {
	version, mode, err := zkStat(ctx, addr)
	switch {
	case err != nil || version == "":
		e.note("reachable", "%s: it does not say what it is; 4lw.commands.whitelist=srvr would let it", addr)
	default:
		e.Version = version
		e.ok("reachable", "ZooKeeper %s on %s, %s", version, addr, mode)
		if !atLeast(version, 3, 5) {
			e.fail("version", "use 3.5 or later", "%s is too old", version)
		}
	}
	switch {
	case readOnly:
		e.fail("ensemble", "more than half of its servers must run and reach each other", "%s has lost its ensemble and only lets read", addr)
	case mode == "standalone":
		e.note("ensemble", "one server: while it is down no lock can be taken or renewed")
	}
}

// zkSessions compares the session timeouts that the servers allow with what the
// store asks for: 3/2 of the TTL.
func (e *exam) zkSessions(shortest, longest time.Duration) {
	asked := e.ttl * 3 / 2
	switch {
	case shortest > asked:
		e.warn("sessions", fmt.Sprintf("set minSessionTimeout=%d, or a smaller tickTime; or use --ttl %v and know it", asked.Milliseconds(), shortest*2/3),
			"they last %v at least: who dies holding a lock with a TTL of %v blocks it for so long", shortest, e.ttl)
	case longest < asked:
		e.warn("sessions", fmt.Sprintf("set maxSessionTimeout=%d, or use --ttl %v", asked.Milliseconds(), longest*2/3),
			"they last %v at most: a lock with a TTL of %v must be renewed as if that were %v", longest, e.ttl, longest*2/3)
	default:
		e.ok("sessions", "%v to %v, as a TTL of %v needs", shortest, longest, e.ttl)
	}
}

func (e *exam) zkHosts() (all []string) {
	for host := range strings.SplitSeq(e.url.Host, ",") {
		all = append(all, withPort(host, "2181"))
	}
	return all
}

func (e *exam) zkRoot() string { return cmp.Or(strings.TrimSuffix(e.url.Path, "/"), "/pawl") }

func zkRemedy(err error) string {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return "check user and password, and whose the root is (getAcl); or use another root: zk://HOST/ROOT"
	case errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		return "check user and password; special characters are written %XX"
	}
	return ""
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// zkOffer is what a server offers who wants a session.
type zkOffer struct {
	timeout  time.Duration
	readOnly bool // it has lost its ensemble
}

// errZKCloses: a server does so without a word when it serves nobody, or has too
// many connections of this address.
var errZKCloses = errors.New("it closes the connection")

// zkSession asks for a session with that timeout, and ends it. The client does
// not tell what it was granted.
func zkSession(ctx context.Context, addr string, timeout time.Duration) (o zkOffer, err error) {
	conn, err := zkDial(ctx, addr)
	if err != nil {
		return o, err
	}
	defer conn.Close()
	// Protocol version, last transaction, timeout, session, password, read-only
	// allowed.
	var q []byte
	q = binary.BigEndian.AppendUint32(q, 0)
	q = binary.BigEndian.AppendUint64(q, 0)
	q = binary.BigEndian.AppendUint32(q, uint32(timeout.Milliseconds()))
	q = binary.BigEndian.AppendUint64(q, 0)
	q = binary.BigEndian.AppendUint32(q, 16)
	q = append(q, make([]byte, 16)...)
	q = append(q, 1)
	if err := zkSend(conn, q); err != nil {
		return o, fmt.Errorf("%w: %w", errZKCloses, err)
	}
	r := bufio.NewReader(conn)
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return o, fmt.Errorf("%w: %w", errZKCloses, err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 36 || n > 1<<10 {
		return o, errors.New("it does not speak ZooKeeper's protocol")
	}
	reply := make([]byte, n)
	if _, err := io.ReadFull(r, reply); err != nil {
		return o, err
	}
	o.timeout = time.Duration(binary.BigEndian.Uint32(reply[4:])) * time.Millisecond
	o.readOnly = n > 36 && reply[36] != 0
	// Close the session: a request with a number and its type, -11. The server
	// replies, and closes the connection.
	if err := zkSend(conn, []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}); err != nil {
		return o, err
	}
	_, err = io.Copy(io.Discard, r)
	return o, err
}

func zkSend(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// zkStat returns what a server tells of itself by the command srvr.
func zkStat(ctx context.Context, addr string) (version, mode string, err error) {
	conn, err := zkDial(ctx, addr)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, "-")
		case "Mode":
			mode = value
		}
	}
	return version, mode, err
}

func zkDial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: step}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(step))
}
