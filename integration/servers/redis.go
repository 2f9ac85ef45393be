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
	"testing"
	"time"
)

// ErrMissing: the server's program is not installed.
var ErrMissing = errors.New("the server is not installed: `make test` installs it")

// RedisOptions of a server. The zero value keeps all data in memory only.
type RedisOptions struct {
	Valkey     bool     // it is a valkey-server
	AppendOnly bool     // write every command to a file before it is confirmed
	Password   string   // of the default user
	Cluster    bool     // it is one of a cluster
	TLS        bool     // it has a second port, for clients with a certificate; see TLSURL
	Args       []string // further arguments, as in "--maxmemory", "1mb"
}

// program is the server's, and the name of its package.
func (o *RedisOptions) program() string {
	if o.Valkey {
		return "valkey-server"
	}
	return "redis-server"
}

// Redis is a redis-server, or valkey-server, that was started here.
type Redis struct {
	daemon
	opts RedisOptions
	bus  int // the second port of one of a cluster; the first one's plus 10000 may be taken

	tlsPort int
	certs   *certificates
}

// StartRedis starts a server that keeps its data in dir, and returns when it
// accepts commands.
func StartRedis(dir string, opts RedisOptions) (*Redis, error) {
	program := opts.program()
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("%w, or: apt-get install %s", ErrMissing, program)
	}
	r := &Redis{daemon: daemon{name: program, dir: dir}, opts: opts}
	r.command, r.hello = r.server, r.replies
	var err error
	if r.port, err = takePort(); err != nil {
		return nil, err
	}
	if opts.Cluster {
		if r.bus, err = takePort(); err != nil {
			return nil, err
		}
	}
	if opts.TLS {
		if r.tlsPort, err = takePort(); err != nil {
			return nil, err
		}
		if r.certs, err = makeCertificates(dir); err != nil {
			return nil, err
		}
	}
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
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

// URL names the server as pawl's --store does.
func (r *Redis) URL() string {
	if r.opts.Password != "" {
		return "redis://:" + r.opts.Password + "@" + r.Addr()
	}
	return "redis://" + r.Addr()
}

// TLSURL is URL for the port with TLS, and names what a client needs.
func (r *Redis) TLSURL() string {
	return fmt.Sprintf("rediss://%s?ca=%s&cert=%s&key=%s", local(r.tlsPort), r.certs.ca, r.certs.cert, r.certs.key)
}

// Follows reports whether it is a replica, of the primary at that port if it is not "", and
// has what that has.
func (r *Redis) Follows(port string) bool {
	info, err := r.CLI("INFO", "replication")
	return err == nil && strings.Contains(info, "master_port:"+port) && strings.Contains(info, "master_link_status:up")
}

// CLI sends one command by redis-cli, and returns what that prints. A reply that is an
// error is one.
func (r *Redis) CLI(args ...string) (string, error) {
	cmd := exec.Command("redis-cli", append([]string{"-e", "-p", strconv.Itoa(r.port)}, args...)...)
	if r.opts.Password != "" {
		cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+r.opts.Password)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *Redis) server() *exec.Cmd {
	args := []string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir,
		"--save", "", "--daemonize", "no",
	}
	if r.opts.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "no")
	}
	if r.opts.Password != "" {
		args = append(args, "--requirepass", r.opts.Password)
	}
	if r.opts.Cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(r.bus))
	}
	if r.opts.TLS {
		args = append(args, "--tls-port", strconv.Itoa(r.tlsPort),
			"--tls-ca-cert-file", r.certs.ca, "--tls-cert-file", r.certs.cert, "--tls-key-file", r.certs.key)
	}
	cmd := exec.Command(r.name, append(args, r.opts.Args...)...)
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

// replies tells whether the server, and not another on its port, replies.
func (r *Redis) replies(pid int) bool {
	out, err := r.send("INFO server")
	return err == nil && strings.Contains(out, "process_id:"+strconv.Itoa(pid)+"\r")
}

// send sends one inline command, on a connection of its own.
func (r *Redis) send(line string) (string, error) {
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

// Restart kills the server if it runs, and starts it again on the same port,
// with the data it had written (see AppendOnly) or, without keep, with none.
func (r *Redis) Restart(keep bool) error {
	r.Kill()
	if !keep {
		for _, pattern := range []string{"*.rdb", "*.aof", "appendonlydir"} {
			files, _ := filepath.Glob(filepath.Join(r.dir, pattern))
			for _, f := range files {
				if err := os.RemoveAll(f); err != nil {
					return fmt.Errorf("remove the data of %s: %w", r.name, err)
				}
			}
		}
	}
	return r.start()
}
