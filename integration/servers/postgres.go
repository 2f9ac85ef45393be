package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// ErrNoPostgres: the server's program is not installed.
var ErrNoPostgres = errors.New("postgres is not installed: `make test` installs it, or: apt-get install postgresql")

// PostgresOptions of a server.
type PostgresOptions struct {
	Password string   // of the user postgres; without one everybody may come in
	Args     []string // further arguments, as in "-c", "fsync=off"
}

// Postgres is a PostgreSQL server that was started here.
type Postgres struct {
	daemon
	opts    PostgresOptions
	program string
	account
}

// program finds one of PostgreSQL's programs. In Debian they are not in PATH, and
// what is there may be wrappers that work on the system's own server.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(paths) == 0 {
		return "", ErrNoPostgres
	}
	slices.SortFunc(paths, func(a, b string) int { return len(a) - len(b) })
	return paths[len(paths)-1], nil
}

// StartPostgres starts a server with a data folder of its own, and returns when it
// accepts commands. Remove ends it and removes the folder.
func StartPostgres(opts PostgresOptions) (*Postgres, error) {
	p, err := newPostgres(opts)
	if err != nil {
		return nil, err
	}
	if err := p.initdb(); err != nil {
		os.RemoveAll(p.dir)
		return nil, err
	}
	if err := p.serve(); err != nil {
		return nil, err
	}
	return p, nil
}

// initdb makes the data folder.
func (p *Postgres) initdb() error {
	initdb := func(data string, auth ...string) error {
		return p.run("initdb", append(auth, "-D", data, "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")...)
	}
	if p.opts.Password == "" {
		return p.copyOf(p.program, p.data(), func(data string) error { return initdb(data, "--auth=trust") })
	}
	file := filepath.Join(p.dir, "password")
	if err := os.WriteFile(file, []byte(p.opts.Password+"\n"), 0o644); err != nil {
		return err
	}
	return initdb(p.data(), "--auth=scram-sha-256", "--pwfile="+file)
}

// newPostgres returns a server with an empty folder.
func newPostgres(opts PostgresOptions) (*Postgres, error) {
	server, err := program("postgres")
	if err != nil {
		return nil, err
	}
	account, err := someUser("postgres", "nobody")
	if err != nil && os.Getuid() == 0 {
		return nil, fmt.Errorf("start postgres, which refuses to run as root: %w", err)
	}
	dir, err := account.folder("pg")
	if err != nil {
		return nil, err
	}
	p := &Postgres{opts: opts, daemon: daemon{name: "postgres", dir: dir}, program: server, account: account}
	p.command = func() *exec.Cmd {
		cmd := account.as(exec.Command(server, append([]string{
			"-D", p.data(), "-k", dir, "-c", "listen_addresses=127.0.0.1", "-p", strconv.Itoa(p.port),
			"-c", "max_connections=200",
		}, opts.Args...)...))
		cmd.Dir = dir
		quitWithParent(cmd.SysProcAttr) // see Remove
		return cmd
	}
	p.hello = p.accepts
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// run runs one of PostgreSQL's other programs as the server's user.
func (p *Postgres) run(name string, args ...string) error {
	path, err := program(name)
	if err != nil {
		return err
	}
	cmd := p.as(exec.Command(path, args...))
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// serve starts the server for the first time; if that fails, it is removed.
func (p *Postgres) serve() (err error) {
	if p.port, err = takePort(); err == nil {
		err = p.start()
	}
	if err != nil {
		p.Remove()
	}
	return err
}

// RunPostgres starts a server for a test, and removes it at its end.
func RunPostgres(t testing.TB, opts PostgresOptions) *Postgres {
	t.Helper()
	opts.Args = append([]string{"-c", "fsync=off"}, opts.Args...) // see unsynced
	p, err := StartPostgres(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Remove)
	return p
}

// RunReplica starts a server for a test that follows the one at addr: p, or a
// proxy in front of it. It is removed at the test's end.
func (p *Postgres) RunReplica(t testing.TB, addr string, opts PostgresOptions) *Postgres {
	t.Helper()
	opts.Args = append([]string{"-c", "fsync=off"}, opts.Args...) // see unsynced
	r, err := newPostgres(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Remove)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	from := fmt.Sprintf("host=%s port=%s user=postgres", host, port)
	if err := r.run("pg_basebackup", "-D", r.data(), "-d", from, "-R", "-X", "stream", "-c", "fast", "--no-sync"); err != nil {
		t.Fatal(err)
	}
	if err := r.serve(); err != nil {
		t.Fatal(err)
	}
	return r
}

// Promote makes a replica a primary, and waits until it is.
func (p *Postgres) Promote() error { return p.run("pg_ctl", "promote", "-w", "-D", p.data()) }

// URL names the server as pawl's --store does.
func (p *Postgres) URL() string { return p.URLAt(p.Addr()) }

// URLAt is URL for a proxy at addr.
func (p *Postgres) URLAt(addr string) string {
	user := "postgres"
	if p.opts.Password != "" {
		user += ":" + p.opts.Password
	}
	return "postgres://" + user + "@" + addr + "/postgres?sslmode=disable"
}

// accepts tells whether the server says that it is ready: it writes so, as the
// last word, into a file beside its data.
func (p *Postgres) accepts(pid int) bool {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 8 || lines[0] != strconv.Itoa(pid) {
		return false
	}
	if status := strings.TrimSpace(lines[7]); status != "ready" && status != "standby" {
		return false
	}
	c, err := net.DialTimeout("tcp", p.Addr(), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Pause stops the server's processes, all of them: the others would go on.
func (p *Postgres) Pause() {
	p.daemon.Pause() // it starts no more of them
	p.all(syscall.SIGSTOP)
	if pid := p.PID(); pid != 0 {
		for _, child := range children(pid) {
			awaitStopped(child)
		}
	}
}

// Resume lets them go on.
func (p *Postgres) Resume() { p.all(syscall.SIGCONT) }

// Stop asks the server to end (SIGINT, its fast way), and waits until it has.
func (p *Postgres) Stop() {
	p.Resume()
	p.signal(syscall.SIGINT, true)
}

// Kill ends the server's processes at once, and waits until the first of them
// has ended.
func (p *Postgres) Kill() {
	p.daemon.Pause() // it starts no more of them
	p.all(syscall.SIGKILL)
	p.daemon.Kill()
}

// Restart kills the server if it runs, and starts it again on the same port,
// with its data.
func (p *Postgres) Restart() (err error) {
	p.Kill()
	// While the last of the old processes ends, the new server refuses to start.
	for end := time.Now().Add(await.Limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = p.start(); err == nil {
			break
		}
	}
	return err
}

// Remove ends the server, and removes its data, and the segment of shared memory by which
// a server knows that it is the only one on its data. One that is killed leaves that
// behind, and a system has room for some thousands.
func (p *Postgres) Remove() {
	p.Resume()
	p.signal(syscall.SIGQUIT, true) // it ends at once, and tidies up
	if text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid")); err == nil {
		if lines := strings.Split(string(text), "\n"); len(lines) > 6 {
			var key, id int
			if _, err := fmt.Sscan(lines[6], &key, &id); err == nil {
				removeSegment(id)
			}
		}
	}
	os.RemoveAll(p.dir)
}

// all sends a signal to the server and its children.
func (p *Postgres) all(s syscall.Signal) {
	pid := p.PID()
	if pid == 0 {
		return
	}
	for _, child := range children(pid) {
		syscall.Kill(child, s)
	}
	syscall.Kill(pid, s)
}

// children returns the processes that a process has started.
func children(pid int) (pids []int) {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if n, _ := fmt.Sscan(line, &child, &parent); n == 2 && parent == pid {
			pids = append(pids, child)
		}
	}
	return pids
}
