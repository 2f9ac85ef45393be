// Package servers starts real servers on free local ports and in folders of
// their own, for tests and benchmarks, and treats them badly.
package servers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ErrMissing: the server's program is not installed.
var ErrMissing = errors.New("redis-server is not installed: `make test` installs it, or: apt-get install redis-server")

// RedisOptions of a server. The zero value keeps all data in memory only.
type RedisOptions struct {
	AppendOnly bool     // write every command to disk before it is answered
	Password   string   // of the default user
	Args       []string // further arguments, as in "--maxmemory", "1mb"
}

// Redis is a redis-server that was started here.
type Redis struct {
	dir  string
	opts RedisOptions
	port int

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has
}

// StartRedis starts a server that keeps its data in dir, and answers when it
// accepts commands.
func StartRedis(dir string, opts RedisOptions) (*Redis, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, ErrMissing
	}
	// The port is free until somebody else takes it: then take another one.
	var err error
	for range 5 {
		r := &Redis{dir: dir, opts: opts}
		if r.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = r.start(); err == nil {
			return r, nil
		}
	}
	return nil, err
}

// RunRedis starts a server for a test, and stops it at its end.
func RunRedis(t testing.TB, opts RedisOptions) *Redis {
	t.Helper()
	r, err := StartRedis(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Kill() })
	return r
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("look for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Addr is host and port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL names the server as pawl's --store does.
func (r *Redis) URL() string {
	if r.opts.Password != "" {
		return "redis://:" + r.opts.Password + "@" + r.Addr()
	}
	return "redis://" + r.Addr()
}

// PID is that of the running server, 0 if there is none.
func (r *Redis) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return 0
	}
	return r.cmd.Process.Pid
}

func (r *Redis) start() error {
	args := []string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir,
		"--save", "", "--daemonize", "no", "--logfile", filepath.Join(r.dir, "redis.log"),
	}
	if r.opts.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if r.opts.Password != "" {
		args = append(args, "--requirepass", r.opts.Password)
	}
	cmd := exec.Command("redis-server", append(args, r.opts.Args...)...)
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	r.mu.Lock()
	r.cmd, r.exited = cmd, exited
	r.mu.Unlock()
	if err := r.ready(exited); err != nil {
		r.Kill()
		log, _ := os.ReadFile(filepath.Join(r.dir, "redis.log"))
		return fmt.Errorf("start redis-server on %s: %w\n%s", r.Addr(), err, bytes.TrimSpace(log))
	}
	return nil
}

// ready waits until the server, and not another on its port, answers.
func (r *Redis) ready(exited <-chan struct{}) error {
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-exited:
			return errors.New("it has ended")
		default:
		}
		if out, err := r.command("INFO server"); err == nil && strings.Contains(out, "process_id:"+strconv.Itoa(r.PID())+"\r") {
			return nil
		}
	}
	return errors.New("it does not answer")
}

// command sends one inline command, on a connection of its own.
func (r *Redis) command(line string) (string, error) {
	c, err := net.DialTimeout("tcp", r.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if r.opts.Password != "" {
		line = "AUTH " + r.opts.Password + "\r\n" + line
	}
	if _, err := c.Write([]byte(line + "\r\n")); err != nil {
		return "", err
	}
	var out []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(out, []byte("process_id:")) || !bytes.HasSuffix(out, []byte("\r\n")) {
		n, err := c.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			return string(out), err
		}
	}
	return string(out), nil
}

// Kill ends the server at once (SIGKILL), and waits until it has ended.
func (r *Redis) Kill() { r.signal(syscall.SIGKILL, true) }

// Stop asks the server to end (SIGTERM), and waits until it has.
func (r *Redis) Stop() {
	r.Resume() // a stopped process does not see it
	r.signal(syscall.SIGTERM, true)
}

// Pause stops the server's process: connections stand, nothing is answered.
func (r *Redis) Pause() { r.signal(syscall.SIGSTOP, false) }

// Resume lets it go on.
func (r *Redis) Resume() { r.signal(syscall.SIGCONT, false) }

func (r *Redis) signal(s syscall.Signal, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	r.cmd.Process.Signal(s)
	if end {
		<-r.exited
		r.cmd = nil
	}
}

// Restart kills the server if it runs, and starts it again on the same port,
// with the data it had written (see AppendOnly) or, without keep, with none.
func (r *Redis) Restart(keep bool) error {
	r.Kill()
	if !keep {
		for _, pattern := range []string{"*.rdb", "*.aof", "appendonlydir"} {
			files, _ := filepath.Glob(filepath.Join(r.dir, pattern))
			for _, f := range files {
				if err := os.RemoveAll(f); err != nil {
					return fmt.Errorf("remove the data of redis-server: %w", err)
				}
			}
		}
	}
	return r.start()
}
