//go:build unix

package command

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

type redisBundle struct {
	*bundle
	redis *servers.Redis
}

func newRedis(t *testing.T, o servers.RedisOptions) *redisBundle {
	t.Parallel()
	r := servers.RunRedis(t, o)
	return &redisBundle{newBundle(t, r.URL()), r}
}

// A command that ignores SIGTERM must be dead before another can hold.
func TestServerGoesForGood(t *testing.T) {
	for name, end := range map[string]func(*servers.Redis){"stopped": (*servers.Redis).Pause, "killed": (*servers.Redis).Kill} {
		t.Run(name, func(t *testing.T) {
			b := newRedis(t, servers.RedisOptions{})
			const ttl = 10 * time.Second
			p, pid := b.hold("x", "--ttl", ttl.String())
			gone := time.Now()
			end(b.redis)
			proctest.Eventually(t, func() bool { return !alive(pid) }, "the command lives on")
			// The last renewal was sent before the server went.
			if d := time.Since(gone); d >= ttl {
				t.Errorf("the command lived for %v after the server went, and the TTL is %v", d, ttl)
			}
			p.Want(79)
			if !strings.Contains(p.Printed(), "could not be renewed") && !strings.Contains(p.Printed(), "was not renewed in time") || name == "killed" && !strings.Contains(p.Printed(), "refused") {
				t.Error(p.Printed())
			}
		})
	}
}

func TestShortOutageIsRiddenOut(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	p := b.Start("run", "--ttl", "12s", "x", "sh", "-c", "echo ready; sleep 6; echo end")
	p.Await("ready")
	b.redis.Pause()
	time.Sleep(4500 * time.Millisecond) // longer than a third of the TTL
	b.redis.Resume()
	p.Want(0)
}

func TestKilledHolder(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	p, pid := b.hold("x", "--ttl", "4s")
	next := b.waiter("x", "true")
	p.Process.Kill()
	proctest.Eventually(t, func() bool { return !alive(pid) }, "the command outlived its pawl")
	next.Want(0)
}

// A paused holder loses the lock to another, and learns it when it goes on.
func TestPausedHolder(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	p, pid := b.hold("x", "--ttl", "4s")
	next := b.waiter("x", "true")
	p.Process.Signal(syscall.SIGSTOP)
	next.Want(0)
	p.Process.Signal(syscall.SIGCONT)
	p.Want(79)
	if alive(pid) {
		t.Error("the command lives on")
	}
}

func TestForgottenByTheServer(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	p, pid := b.hold("x", "--ttl", "2s")
	conn, err := net.Dial("tcp", b.redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		t.Fatal(err)
	}
	p.Want(79)
	if alive(pid) {
		t.Error("the command lives on")
	}
}

func TestForcedRelease(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	p, _ := b.hold("x", "--ttl", "10m", "--kill-after", "100ms")
	next := b.waiter("x", "true")
	b.Start("release", "x", "--force").Want(0)
	p.Want(79) // long before a renewal
	next.Want(0)
}

func TestRestartWhileWaiting(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{AppendOnly: true})
	holder := b.Start("run", "--ttl", "9s", "x", "sh", "-c", "echo ready; sleep 5")
	holder.Await("ready")
	waiters := []*proctest.Process{b.waiter("x", "true"), b.waiter("x", "true"), b.waiter("x", "true")}
	if err := b.redis.Restart(true); err != nil {
		t.Fatal(err)
	}
	holder.Want(0)
	for _, w := range waiters {
		w.Want(0)
	}
}

func TestPassword(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{Password: "open-sesame"})
	p := b.Start("run", "x", "env")
	p.Want(0)
	if out := p.Printed(); strings.Contains(out, "sesame") || !strings.Contains(out, "PAWL_STORE=redis://"+b.redis.Addr()) {
		t.Errorf("the command sees:\n%s", out)
	}
	for _, url := range []string{"redis://:wrong-word@" + b.redis.Addr(), "redis://" + b.redis.Addr()} {
		p := b.Start("run", "--store", url, "x", "true")
		p.Want(69)
		if strings.Contains(p.Printed(), "wrong-word") {
			t.Error(p.Printed())
		}
	}
	file := filepath.Join(b.Dir, "password")
	b.write("password", "open-sesame\n")
	bare := b.Command("run", "--store", "redis://"+b.redis.Addr(), "x", "env")
	bare.Env = append(bare.Env, "PAWL_STORE_PASSWORD_FILE="+file)
	bare.Start()
	if out := bare.Want(0).Printed(); strings.Contains(out, "sesame") || strings.Contains(out, file) {
		t.Errorf("the command sees:\n%s", out)
	}
	b.Start("run", "--pass-store", "x", proctest.Pawl, "run", "--no-wait", "y", "true").Want(0)
	// A pawl inside is refused, rather than left to lock elsewhere.
	inner := b.Start("run", "x", proctest.Pawl, "run", "--no-wait", "y", "true")
	inner.Want(69)
	if !strings.Contains(inner.Printed(), "set PAWL_STORE there") {
		t.Error(inner.Printed())
	}
}

func TestServerThatNeverReplies(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	b.redis.Pause()
	b.Start("run", "x", "true").Want(69)
	b.Start("run", "--no-wait", "x", "true").Want(69)
	b.Start("run", "--timeout", "1s", "x", "true").Want(69)
	b.Start("show", "x").Want(69)
}

// A server that allows reads but takes no writes is not a busy lock.
func TestServerThatRefusesWrites(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	b.configure("maxmemory", "1")
	p := b.Start("run", "--timeout", "1s", "x", "true")
	p.Want(69)
	if out := p.Printed(); !strings.Contains(out, "OOM") || strings.Contains(out, "busy") {
		t.Error(out)
	}
	b.configure("maxmemory", "0")
	b.hold("x")
	b.Start("run", "--timeout", "1s", "x", "true").Want(75)
}

// Who waits is told once when the server goes, and once when it is back.
func TestWaiterTellsOfAnOutage(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{AppendOnly: true})
	holder := b.Start("run", "--ttl", "1m", "x", "sh", "-c", "echo ready; while ! test -e $D/end; do sleep 0.05; done")
	holder.Await("ready")
	p := b.waiter("x", "--json", "--ttl=6s", "true")
	b.redis.Kill()
	p.Await(`"event":"retrying"`)
	time.Sleep(3 * time.Second) // for more of the same
	if err := b.redis.Restart(true); err != nil {
		t.Fatal(err)
	}
	p.Await(`"event":"back"`)
	b.write("end", "")
	holder.Want(0)
	p.Want(0)
	if n := strings.Count(p.Printed(), "retrying"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.Printed())
	}
}

// Nothing is held: there is nothing to wait for.
func TestInterruptedWithoutAServer(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{})
	b.redis.Kill()
	p := b.Start("run", "x", "true")
	time.Sleep(500 * time.Millisecond)
	p.Process.Signal(syscall.SIGINT)
	p.Want(130)
	if out := p.Printed(); strings.Contains(out, "close:") {
		t.Error(out)
	}
}

func (b *redisBundle) configure(name, value string) {
	b.T.Helper()
	b.order("CONFIG SET " + name + " " + value)
}

// order sends a command whose reply is OK.
func (b *redisBundle) order(line string) {
	b.T.Helper()
	conn, err := net.Dial("tcp", b.redis.Addr())
	if err != nil {
		b.T.Fatal(err)
	}
	defer conn.Close()
	if u, err := url.Parse(b.URL); err == nil && u.User != nil {
		password, _ := u.User.Password()
		line = "AUTH " + password + "\r\n" + line
	}
	if _, err := fmt.Fprintf(conn, "%s\r\nPING\r\n", line); err != nil {
		b.T.Fatal(err)
	}
	var reply []byte
	for !bytes.HasSuffix(reply, []byte("+PONG\r\n")) {
		buf := make([]byte, 256)
		n, err := conn.Read(buf)
		if reply = append(reply, buf[:n]...); err != nil {
			b.T.Fatalf("%q, %v", reply, err)
		}
	}
	if bytes.Contains(reply, []byte("-")) {
		b.T.Fatalf("%s: %q", line, reply)
	}
}
