//go:build unix

// Package command tests cmd/pawl, as users run it, on real servers.
package command

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/integration/servers"
)

var bin string // the command

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pawl-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "pawl")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "../../cmd/pawl"
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build pawl: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// bundle is one test's server and folder.
type bundle struct {
	t     *testing.T
	redis *servers.Redis
	dir   string
}

func newBundle(t *testing.T, o servers.RedisOptions) *bundle {
	t.Parallel()
	return &bundle{t, servers.RunRedis(t, o), t.TempDir()}
}

type process struct {
	*exec.Cmd
	t *testing.T

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts pawl; it is killed at the end of the test.
func (b *bundle) start(args ...string) *process {
	b.t.Helper()
	p := &process{Cmd: exec.Command(bin, args...), t: b.t}
	p.Env = append(os.Environ(), "PAWL_STORE="+b.redis.URL(), "D="+b.dir)
	p.Stdout, p.Stderr, p.WaitDelay = p, p, 2*time.Second
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Process.Kill() })
	return p
}

// hold starts a pawl whose command ignores SIGTERM, and answers the command's
// pid when it runs.
func (b *bundle) hold(flags ...string) (*process, int) {
	b.t.Helper()
	p := b.start(append(append([]string{"run"}, flags...), "x", "sh", "-c", `trap "" TERM; echo "ready $$."; while :; do sleep 0.05; done`)...)
	p.wait("ready ", ".")
	_, after, _ := strings.Cut(p.printed(), "ready ")
	pid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(after), "."))
	if err != nil {
		b.t.Fatal(err)
	}
	return p, pid
}

// waiter starts a pawl that waits for x; flags come first, as --flag=value.
func (b *bundle) waiter(args ...string) *process {
	b.t.Helper()
	flags := 0
	for flags < len(args) && strings.HasPrefix(args[flags], "-") {
		flags++
	}
	p := b.start(slices.Concat([]string{"run"}, args[:flags], []string{"x"}, args[flags:])...)
	eventually(b.t, "it does not wait", func() bool {
		show := b.start("show", "x")
		show.want(0)
		return strings.Contains(show.printed(), strconv.Itoa(p.Process.Pid))
	})
	return p
}

func (p *process) wait(texts ...string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q was not printed", texts), func() bool {
		for _, text := range texts {
			if !strings.Contains(p.printed(), text) {
				return false
			}
		}
		return true
	})
}

func (p *process) want(status int) {
	p.t.Helper()
	timer := time.AfterFunc(60*time.Second, func() { p.Process.Kill() })
	defer timer.Stop()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.t.Fatal(err)
	}
	if got := p.ProcessState.ExitCode(); got != status {
		p.t.Errorf("%q ended with %d, want %d\n%s", p.Args[1:], got, status, p.printed())
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// A command that ignores SIGTERM must be dead before another can hold.
func TestServerGoesForGood(t *testing.T) {
	for name, end := range map[string]func(*servers.Redis){"stopped": (*servers.Redis).Pause, "killed": (*servers.Redis).Kill} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, servers.RedisOptions{})
			const ttl = 4 * time.Second
			p, pid := b.hold("--ttl", ttl.String())
			gone := time.Now()
			end(b.redis)
			eventually(t, "the command lives on", func() bool { return !alive(pid) })
			// The last renewal was sent before the server went.
			if d := time.Since(gone); d >= ttl {
				t.Errorf("the command lived for %v after the server went, and the TTL is %v", d, ttl)
			}
			p.want(79)
			if !strings.Contains(p.printed(), "could not be renewed") || name == "killed" && !strings.Contains(p.printed(), "refused") {
				t.Error(p.printed())
			}
		})
	}
}

func TestShortOutageIsRiddenOut(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	p := b.start("run", "--ttl", "6s", "x", "sh", "-c", "echo ready; sleep 6; echo end")
	p.wait("ready")
	b.redis.Pause()
	time.Sleep(2500 * time.Millisecond) // longer than a third of the TTL
	b.redis.Resume()
	p.want(0)
}

func TestKilledHolder(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	p, pid := b.hold("--ttl", "2s")
	next := b.waiter("true")
	p.Process.Kill()
	eventually(t, "the command outlived its pawl", func() bool { return !alive(pid) })
	next.want(0)
}

// A paused holder loses the lock to another, and learns it when it goes on.
func TestPausedHolder(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	p, pid := b.hold("--ttl", "1s")
	next := b.waiter("true")
	p.Process.Signal(syscall.SIGSTOP)
	next.want(0)
	p.Process.Signal(syscall.SIGCONT)
	p.want(79)
	if alive(pid) {
		t.Error("the command lives on")
	}
}

func TestForgottenByTheServer(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	p, pid := b.hold("--ttl", "2s")
	conn, err := net.Dial("tcp", b.redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		t.Fatal(err)
	}
	p.want(79)
	if alive(pid) {
		t.Error("the command lives on")
	}
}

func TestForcedRelease(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	p, _ := b.hold("--ttl", "10m", "--kill-after", "100ms")
	next := b.waiter("true")
	b.start("release", "x", "--force").want(0)
	p.want(79) // long before a renewal
	next.want(0)
}

func TestRestartWhileWaiting(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{AppendOnly: true})
	holder := b.start("run", "--ttl", "9s", "x", "sh", "-c", "echo ready; sleep 5")
	holder.wait("ready")
	waiters := []*process{b.waiter("true"), b.waiter("true"), b.waiter("true")}
	if err := b.redis.Restart(true); err != nil {
		t.Fatal(err)
	}
	holder.want(0)
	for _, w := range waiters {
		w.want(0)
	}
}

// No increment is lost and tokens rise, also when the server lost everything.
func TestCounter(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	if err := os.WriteFile(b.dir+"/counter", []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds, procs = 2, 25
	for i := range rounds {
		if i > 0 {
			if err := b.redis.Restart(false); err != nil {
				t.Fatal(err)
			}
		}
		var all []*process
		for range procs {
			all = append(all, b.start("run", "counter", "sh", "-c", `n=$(cat $D/counter); echo $PAWL_TOKEN >> $D/tokens; echo $((n+1)) > $D/counter`))
		}
		for _, p := range all {
			p.want(0)
		}
	}
	counter, err := os.ReadFile(b.dir + "/counter")
	if err != nil || strings.TrimSpace(string(counter)) != strconv.Itoa(rounds*procs) {
		t.Errorf("the counter is %s (%v), want %d", counter, err, rounds*procs)
	}
	tokens, err := os.ReadFile(b.dir + "/tokens")
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for line := range strings.Lines(string(tokens)) {
		token, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %d after %d (%v)", token, last, err)
		}
		last = token
	}
}

func TestPassword(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{Password: "open-sesame"})
	p := b.start("run", "x", "env")
	p.want(0)
	if out := p.printed(); strings.Contains(out, "sesame") || !strings.Contains(out, "PAWL_STORE=redis://"+b.redis.Addr()) {
		t.Errorf("the command sees:\n%s", out)
	}
	for _, url := range []string{"redis://:wrong-word@" + b.redis.Addr(), "redis://" + b.redis.Addr()} {
		p := b.start("run", "--store", url, "x", "true")
		p.want(69)
		if strings.Contains(p.printed(), "wrong-word") {
			t.Error(p.printed())
		}
	}
	// A pawl inside is refused, rather than left to lock elsewhere.
	inner := b.start("run", "x", bin, "run", "--no-wait", "y", "true")
	inner.want(69)
	if !strings.Contains(inner.printed(), "set PAWL_STORE there") {
		t.Error(inner.printed())
	}
}

func TestServerThatNeverAnswers(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	b.redis.Pause()
	b.start("run", "x", "true").want(69)
	b.start("run", "--no-wait", "x", "true").want(69)
	b.start("run", "--timeout", "1s", "x", "true").want(69)
	b.start("show", "x").want(69)
}

// A server that answers questions but takes no writes is not a busy lock.
func TestServerThatRefusesWrites(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	b.configure("maxmemory", "1")
	p := b.start("run", "--timeout", "1s", "x", "true")
	p.want(69)
	if out := p.printed(); !strings.Contains(out, "OOM") || strings.Contains(out, "busy") {
		t.Error(out)
	}
	b.configure("maxmemory", "0")
	b.hold()
	b.start("run", "--timeout", "1s", "x", "true").want(75)
}

// Who waits is told once when the server goes, and once when it is back.
func TestWaiterTellsOfAnOutage(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{AppendOnly: true})
	holder := b.start("run", "--ttl", "1m", "x", "sh", "-c", "echo ready; while ! test -e $D/end; do sleep 0.05; done")
	holder.wait("ready")
	p := b.waiter("--json", "--ttl=6s", "true")
	b.redis.Kill()
	p.wait(`"event":"retrying"`)
	time.Sleep(3 * time.Second) // for more of the same
	if err := b.redis.Restart(true); err != nil {
		t.Fatal(err)
	}
	p.wait(`"event":"back"`)
	if err := os.WriteFile(b.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder.want(0)
	p.want(0)
	if n := strings.Count(p.printed(), "retrying"); n != 1 {
		t.Errorf("told %d times:\n%s", n, p.printed())
	}
}

// Nothing is held: there is nothing to wait for.
func TestInterruptedWithoutAServer(t *testing.T) {
	b := newBundle(t, servers.RedisOptions{})
	b.redis.Kill()
	p := b.start("run", "x", "true")
	time.Sleep(500 * time.Millisecond)
	p.Process.Signal(syscall.SIGINT)
	p.want(130)
	if out := p.printed(); strings.Contains(out, "close:") {
		t.Error(out)
	}
}

func (b *bundle) configure(name, value string) {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.redis.Addr())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "CONFIG SET %s %s\r\n", name, value); err != nil {
		b.t.Fatal(err)
	}
	answer := make([]byte, 64)
	if n, err := conn.Read(answer); err != nil || string(answer[:n]) != "+OK\r\n" {
		b.t.Fatalf("%q, %v", answer[:n], err)
	}
}
