package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/cmd/pawl/internal/sdnotify"
	"github.com/pawl-go/pawl/internal/proctest"
)

// manager is a service manager: what it is told is one line after the other.
type manager struct {
	t    *testing.T
	conn *net.UnixConn

	mu    sync.Mutex
	lines []string
}

// manage listens on the socket, which the processes of b are told of.
func (b *bundle) manage(t *testing.T, socket string, vars ...string) *manager {
	t.Helper()
	m := &manager{t: t}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.conn.Close() })
	b.Vars = append(vars, "NOTIFY_SOCKET="+socket)
	return m
}

// read takes in what the processes tell from now on.
func (m *manager) read() *manager {
	go func() {
		buf := make([]byte, 8192)
		for {
			n, err := m.conn.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.lines = append(m.lines, strings.Split(strings.TrimSpace(string(buf[:n])), "\n")...)
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *manager) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[:len(m.lines):len(m.lines)]
}

// count returns how often it was told something that begins so.
func (m *manager) count(prefix string) (n int) {
	for _, line := range m.told() {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func (m *manager) await(prefix string, times int) {
	m.t.Helper()
	proctest.Eventually(m.t, func() bool { return m.count(prefix) >= times }, "%s is not told %d times: %q", prefix, times, m.told())
}

// all returns what was told until now: a mark of the test's own comes after it.
func (m *manager) all() string {
	m.t.Helper()
	c, err := net.DialUnix("unixgram", nil, m.conn.LocalAddr().(*net.UnixAddr))
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte("END=1"))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.await("END=1", 1)
	return strings.Join(m.told(), "\n")
}

func never(t *testing.T, told string, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		if strings.Contains("\n"+told, "\n"+prefix) {
			t.Errorf("%s was told:\n%s", prefix, told)
		}
	}
}

// serving is a command that writes down what it sees, and runs until it is ended.
const serving = `env > "$D/env"; echo "serves $PAWL_TOKEN"; while :; do sleep 0.05; done`

func TestServiceOfRun(t *testing.T) {
	b := newBundle(t)
	holder, second := b.hold("x"), b.Start("run", "x", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "the second does not wait")
	m := b.manage(t, "@"+filepath.Base(t.TempDir())+b.Dir, "WATCHDOG_USEC=60000").read() // abstract
	p := b.Start("run", "x", "sh", "-c", serving)
	m.await("STATUS=waiting for x, 1 ahead", 1)
	m.await("EXTEND_TIMEOUT_USEC=30000000", 1)
	holder.Process.Kill()
	second.Await("ready")
	m.await("STATUS=waiting for x, the next", 1)
	never(t, strings.Join(m.told(), "\n"), "READY", "WATCHDOG", "STOPPING")
	second.Process.Kill()
	m.await("READY=1", 1)
	m.await(fmt.Sprintf("STATUS=holding x, token %d", p.Number("serves")), 1)
	m.await("WATCHDOG=1", 4)
	if env := b.Read("env"); strings.Contains(env, "NOTIFY_SOCKET") || strings.Contains(env, "WATCHDOG_") {
		t.Errorf("the command finds %s", env)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
	before, after, _ := strings.Cut(m.all(), "STOPPING=1")
	if strings.Count(before, "READY=1") != 1 || after == "" {
		t.Errorf("told:\n%s\nand then\n%s", before, after)
	}
	never(t, after, "WATCHDOG", "READY", "STOPPING")
}

func TestServiceLosesItsLock(t *testing.T) {
	b := newBundle(t)
	m := b.manage(t, b.Dir+"/notify").read()
	p := b.hold("x", "--kill-after", "1s")
	m.await("READY=1", 1)
	b.Vars = nil
	b.Run("release", "--force", "x").Want(0)
	p.Want(79)
	told := m.all()
	if !strings.Contains(told, "STATUS=x is lost: ending COMMAND\nSTOPPING=1\n") {
		t.Errorf("told:\n%s", told)
	}
	// With --on-lost=warn it lives on, and so does the watchdog.
	b = bundleOf(t)
	m = b.manage(t, b.Dir+"/notify", "WATCHDOG_USEC=60000").read()
	p = b.hold("x", "--on-lost=warn")
	m.await("READY=1", 1)
	b.Vars = nil
	b.Run("release", "--force", "x").Want(0)
	m.await("STATUS=x is lost; COMMAND goes on without it", 1)
	m.await("WATCHDOG=1", m.count("WATCHDOG=1")+2)
	p.Process.Signal(syscall.SIGTERM)
	p.Want(79)
}

func TestServiceIsReadyWhenItsCommandRuns(t *testing.T) {
	b := newBundle(t)
	script := b.Dir + "/script"
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		command string
		status  int
		ready   int
	}{{script, 127, 0}, {"true", 0, 1}, {"false", 1, 1}} {
		m := b.manage(t, fmt.Sprintf("%s/notify%d", b.Dir, i)).read()
		b.Run("run", "x", tt.command).Want(tt.status)
		told := m.all()
		if m.count("READY=1") != tt.ready || m.count("STOPPING=1") != 1 {
			t.Errorf("%s: told\n%s", tt.command, told)
		}
	}
}

func TestServiceOfItsCommand(t *testing.T) {
	b := newBundle(t)
	m := b.manage(t, b.Dir+"/notify", "WATCHDOG_USEC=60000").read()
	p := b.Command("run", "--pass-notify", "x", "sh", "-c", serving)
	// The shell becomes pawl: it knows the number that systemd would have told.
	p.Args = append([]string{"sh", "-c", `export SYSTEMD_EXEC_PID=$$ WATCHDOG_PID=$$; exec "$0" "$@"`, p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	p.Start()
	p.Await("serves")
	env := b.Read("env")
	if !strings.Contains(env, "NOTIFY_SOCKET="+b.Dir+"/notify\n") || !strings.Contains(env, "WATCHDOG_USEC=60000\n") ||
		strings.Contains(env, "WATCHDOG_PID") || strings.Contains(env, "SYSTEMD_EXEC_PID") {
		t.Errorf("the command finds %s", env)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
	told := m.all()
	never(t, told, "READY", "WATCHDOG")
	if m.count("STATUS=holding x, token ") != 1 || m.count("STOPPING=1") != 1 {
		t.Errorf("told:\n%s", told)
	}
}

// A pawl in a script of the service says nothing, and takes nothing from what it runs.
func TestNoServiceOfItsOwn(t *testing.T) {
	b := newBundle(t)
	m := b.manage(t, b.Dir+"/notify", "WATCHDOG_USEC=60000", "WATCHDOG_PID=1", "SYSTEMD_EXEC_PID=1").read()
	b.Run("run", "x", "sh", "-c", `env > "$D/env"`).Want(0)
	if told := m.all(); told != "END=1" {
		t.Errorf("told:\n%s", told)
	}
	env := b.Read("env")
	for _, v := range append([]string{"NOTIFY_SOCKET=" + b.Dir + "/notify"}, b.Vars...) {
		if !strings.Contains(env, v+"\n") {
			t.Errorf("the command does not find %s:\n%s", v, env)
		}
	}
	b.Vars = []string{"NOTIFY_SOCKET=vsock:2:99"}
	if p := b.Run("run", "x", "true").Want(0); !strings.Contains(p.Err.String(), `NOTIFY_SOCKET "vsock:2:99"`) {
		t.Error(p.Err)
	}
	b.Vars = []string{"NOTIFY_SOCKET=" + b.Dir + "/nothing"}
	if p := b.Run("run", "x", "true").Want(0); strings.Count(p.Err.String(), b.Dir+"/nothing") != 1 {
		t.Error(p.Err)
	}
}

func TestServiceOfElect(t *testing.T) {
	b := newBundle(t)
	first := b.Start("elect", "e", "sh", "-c", loop)
	first.Await("leads e ")
	m := b.manage(t, b.Dir+"/notify", "WATCHDOG_USEC=60000").read()
	p := b.Start("elect", "--always", "e", "sh", "-c", loop)
	b.Vars = nil
	m.await("STATUS=standing for election in e, the next", 1)
	m.await("READY=1", 1)
	m.await("WATCHDOG=1", 3) // also while it waits
	first.Process.Kill()
	m.await("STATUS=leading e, token ", 1)
	b.Run("release", "--force", "e").Want(0)
	m.await("STATUS=leading e, token ", 2)
	told := strings.Join(m.told(), "\n")
	if !strings.Contains(told, "STATUS=e is lost: ending COMMAND") || strings.Count(told, "READY=1") != 1 {
		t.Errorf("told:\n%s", told)
	}
	never(t, told, "STOPPING")
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
	m.all()
	m.await("STOPPING=1", 1)
}

// What a manager has no room for is told later, and holds nobody up.
func TestServiceOfBusyManager(t *testing.T) {
	b := newBundle(t)
	m := b.manage(t, b.Dir+"/notify")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for err == nil {
		err = unix.Sendto(fd, []byte("FULL=1"), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: b.Dir + "/notify"})
	}
	p := b.hold("x")
	b.Vars = nil
	b.queue("x")
	m.read()
	m.await("READY=1", 1)
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
	m.all()
	m.await("STOPPING=1", 1)
}

func TestServiceUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs systemd-analyze")
	}
	unit, err := os.ReadFile("../../docs/pawl-run.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Only what is installed can be verified.
	text := strings.ReplaceAll(string(unit), "/usr/bin/pawl", proctest.Pawl)
	if text == string(unit) {
		t.Error("it does not start /usr/bin/pawl")
	}
	verify := func(text string) string {
		file := filepath.Join(dir, "pawl-run.service")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
		if missing := new(exec.Error); errors.As(err, &missing) {
			t.Fatalf("%v: make test installs it", err)
		}
		if err != nil && len(said) == 0 {
			said = []byte(err.Error())
		}
		return string(said)
	}
	if said := verify(text); strings.Contains(said, "pawl-run.service") {
		t.Error(said)
	}
	if said := verify(strings.Replace(text, "Type=notify", "Type=notifies", 1)); !strings.Contains(said, "pawl-run.service") {
		t.Errorf("a wrong type passes: %s", said)
	}

	// What the unit starts, with its variables, is what it says it is.
	b := bundleOf(t)
	var args []string
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			args = strings.Fields(command)[1:]
		}
	}
	m := b.manage(t, b.Dir+"/notify", "WATCHDOG_USEC=60000").read()
	for i, arg := range args {
		if arg == "--" {
			args = append(args[:i+1:i+1], "sh", "-c", serving)
		}
	}
	p := b.Start(args...)
	m.await("READY=1", 1)
	m.await("WATCHDOG=1", 2)
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
}

// lease is one whose deadline the test sets.
type lease struct {
	held
	deadline time.Time
	lost     chan struct{}
}

func (l *lease) Deadline() time.Time   { return l.deadline }
func (l *lease) Lost() <-chan struct{} { return l.lost }
func (l *lease) Token() int64          { return 7 }

// A pawl that believes in its lock no longer, and has not ended COMMAND, is one that
// hangs: the manager hears no more of it.
func TestServiceHangs(t *testing.T) {
	b := newBundle(t)
	m := b.manage(t, b.Dir+"/notify").read()
	env := map[string]string{"NOTIFY_SOCKET": b.Dir + "/notify", "WATCHDOG_USEC": "3000000"}
	found, err := sdnotify.Find(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := (&app{err: os.Stderr}).serviceOf(found, &runOptions{name: "x"}, &watcher{})
	now := time.Now()
	l := &lease{deadline: now.Add(time.Hour), lost: make(chan struct{})}
	s.under(l)
	s.Running()
	m.await("WATCHDOG=1", 1)
	if next := s.Turn(now); next.Sub(s.alive) != time.Second || m.count("WATCHDOG=1") != 1 {
		t.Errorf("the next is due %v after the first", next.Sub(s.alive))
	}
	s.Turn(s.alive.Add(time.Second))
	m.await("WATCHDOG=1", 2)
	s.Turn(now.Add(2 * time.Hour)) // the deadline is over
	close(l.lost)
	s.Turn(now.Add(30 * time.Minute))
	if told := m.all(); m.count("WATCHDOG=1") != 2 {
		t.Errorf("told:\n%s", told)
	}
}
