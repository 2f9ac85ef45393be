package torture

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// echo is a server that says what it hears, and a proxy before it.
type echo struct {
	*testing.T
	*proxy
	heard chan net.Conn // its side of each connection
}

func startEcho(t *testing.T) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{T: t, heard: make(chan net.Conn, 10)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.heard <- c
		}
	}()
	if e.proxy, err = newProxy("tcp", l.Addr().String(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); e.proxy.close() })
	return e
}

// connect returns both ends of a connection.
func (e *echo) connect() (client, server net.Conn) {
	e.Helper()
	client, err := net.Dial("tcp", e.addr())
	if err != nil {
		e.Fatal(err)
	}
	server = await.Value(e, "a connection", e.heard)
	e.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func (e *echo) say(c net.Conn, text string) {
	e.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		e.Fatal(err)
	}
}

func (e *echo) hear(c net.Conn, want string) {
	e.Helper()
	c.SetReadDeadline(time.Now().Add(await.Limit))
	b := make([]byte, len(want))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != want {
		e.Fatalf("%q, %v arrived, want %q", b[:n], err, want)
	}
}

// silent checks that nothing arrives for a moment, neither data nor the end.
func (e *echo) silent(c net.Conn) {
	e.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		e.Fatalf("%d bytes arrived, %v", n, err)
	}
}

func (e *echo) ended(c net.Conn) {
	e.Helper()
	c.SetReadDeadline(time.Now().Add(await.Limit))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		e.Fatalf("%d bytes arrived, %v: it has not ended", n, err)
	}
}

func TestProxyPasses(t *testing.T) {
	e := startEcho(t)
	client, server := e.connect()
	e.say(client, "hello")
	e.hear(server, "hello")
	e.say(server, "you")
	e.hear(client, "you")
	client.Close()
	e.ended(server)
}

func TestProxyCuts(t *testing.T) {
	for _, reset := range []bool{false, true} {
		e := startEcho(t)
		client, server := e.connect()
		e.set(trouble{refuse: true})
		e.cut(reset)
		e.ended(client)
		e.ended(server)
		refused, err := net.Dial("tcp", e.addr())
		if err == nil {
			e.ended(refused)
		}
		e.set(trouble{})
		client, server = e.connect()
		e.say(client, "again")
		e.hear(server, "again")
	}
}

// Late data arrives in order.
func TestProxyIsSlow(t *testing.T) {
	e := startEcho(t)
	client, server := e.connect()
	const late = 20 * time.Millisecond
	e.set(trouble{slow: late})
	var all strings.Builder
	begin := time.Now()
	for i := range 50 {
		text := strings.Repeat(string(rune('a'+i%26)), i)
		all.WriteString(text)
		e.say(client, text)
		time.Sleep(time.Millisecond)
	}
	e.hear(server, all.String())
	if took := time.Since(begin); took < time.Millisecond {
		t.Errorf("it took %v", took)
	}
	e.set(trouble{slow: time.Hour})
	e.say(client, "x")
	e.silent(server)
	e.set(trouble{})
	e.hear(server, "x")
}

// In the dark nothing arrives, not even that the other has gone; later it does.
func TestProxyIsDark(t *testing.T) {
	e := startEcho(t)
	client, server := e.connect()
	e.set(trouble{dark: [2]bool{requests: true}, after: [2]int64{3, 0}})
	e.say(client, "request")
	e.hear(server, "req")
	e.silent(server)
	e.say(server, "reply")
	e.hear(client, "reply")
	e.set(trouble{dark: [2]bool{true, true}})
	e.silent(server)
	e.say(server, "more")
	e.silent(client)
	client.Close()
	e.silent(server)
	e.set(trouble{})
	e.hear(server, "uest")
	e.ended(server)
}

// A connection of which a part was lost does not go on with the rest: that would be
// read as something else, which no network does.
func TestProxyLoses(t *testing.T) {
	e := startEcho(t)
	client, server := e.connect()
	whole, other := e.connect()
	e.set(trouble{dark: [2]bool{replies: true}, lossy: true})
	e.say(server, "lost")
	e.say(client, "request")
	e.hear(server, "request")
	e.silent(client)
	e.set(trouble{dark: [2]bool{replies: true}, lossy: true})
	e.silent(client)
	e.set(trouble{})
	e.ended(client)
	e.ended(server)
	e.say(other, "kept")
	e.hear(whole, "kept")
}

func TestRoutes(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://u:p@h/2":                              "tcp h:6379 -> redis://u:p@A/2",
		"redis://[::1]:7":                              "tcp [::1]:7 -> redis://A",
		"unix://u:p@/run/r.sock?db=2":                  "unix /run/r.sock -> unix://u:p@A?db=2",
		"etcd://u:p@a,b:1/x":                           "tcp a:2379 b:1 -> etcd://u:p@A,B/x",
		"zk://a,[::1]/root":                            "tcp a:2181 [::1]:2181 -> zk://A,B/root",
		"postgres://u@a:1,b/db?create=true":            "tcp a:1 b:5432 -> postgres://u@A,B/db?create=true",
		"postgres:///db?host=/run/pg&port=7":           "unix /run/pg/.s.PGSQL.7 -> postgres:///db?host=DIR&port=7",
		"postgres://a/db?sslmode=require":              "tcp a:5432 -> postgres://A/db?sslmode=require",
		"mysql://root@h/db?prefix=p":                   "tcp h:3306 -> mysql://root@A/db?prefix=p",
		"mysql:///db?socket=/run/my":                   "unix /run/my -> mysql:///db?socket=A",
		"quorum:redis://a,redis://u:p@b:1,redis://c/2": "tcp a:6379 b:1 c:6379 -> quorum:redis://A,redis://u:p@B,redis://C/2",
		"file:///x":                                    "",
	} {
		r, err := newRoute(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if r == nil {
			if want != "" {
				t.Errorf("%s has no connection", raw)
			}
			continue
		}
		ps, err := r.open()
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := ps.url
		for i, p := range ps.all {
			for _, from := range []string{p.addr(), strings.ReplaceAll(p.addr(), "/", "%2F")} {
				got = strings.ReplaceAll(got, from, string(rune('A'+i)))
			}
		}
		if ps.dir != "" {
			got = strings.ReplaceAll(got, strings.ReplaceAll(ps.dir, "/", "%2F"), "DIR")
		}
		ps.close()
		if got = r.network + " " + strings.Join(r.targets, " ") + " -> " + got; got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	for raw, want := range map[string]string{
		"rediss://h":                             "rediss:// is TLS",
		"etcds://h":                              "etcds:// is TLS",
		"postgres://h/db?sslmode=verify-full":    "sslmode=verify-full",
		"mysql://h/db?tls=true":                  "tls=true",
		"postgres:///db?service=x":               "no host and port",
		"postgres:///db?host=elsewhere&port=543": "no host and port",
	} {
		if _, err := newRoute(raw); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--faults kill,pause") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

// A store behind a socket is reached through one.
func TestProxyOfSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := newRoute("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{T: t, proxy: ps.all[0]}
	client, err := net.Dial("unix", strings.TrimPrefix(ps.url, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	e.say(client, "hello")
	e.hear(server, "hello")
	ps.close()
	e.ended(server)
	if _, err := os.Stat(ps.dir); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
}

func TestResource(t *testing.T) {
	r, err := newResource()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	c, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var want bytes.Buffer
	for _, line := range []struct{ say, hear string }{
		{"a 5", "ok"}, {"b/c 3", "ok"}, {"a 5", "ok"}, {"a 4", "stale 5"}, {"a 6", "ok"}, {"b/c 2", "stale 3"}, {"a", `error: "a" is not NAME TOKEN`},
	} {
		if _, err := io.WriteString(c, line.say+"\n"); err != nil {
			t.Fatal(err)
		}
		want.WriteString(line.hear + "\n")
	}
	got := make([]byte, want.Len())
	c.SetReadDeadline(time.Now().Add(await.Limit))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%q, %v, want %q", got[:n], err, want.Bytes())
	}
}
