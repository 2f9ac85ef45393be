package servers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ErrNoEtcd: the server's program is not installed.
var ErrNoEtcd = errors.New("etcd is not installed: `make test` installs it, or: apt-get install etcd-server")

// EtcdOptions of a server.
type EtcdOptions struct {
	Args []string // further arguments, as in "--quota-backend-bytes", "1048576"
	// CA, Cert and Key are files: with Cert and Key it speaks TLS.
	CA, Cert, Key string
}

// Etcd is a server that was started here: a cluster of one member, or one of an
// [EtcdCluster].
type Etcd struct {
	daemon
	opts          EtcdOptions
	peer, metrics int // ports
	member        string
	advertised    string // what its peers connect to
	cluster       string // all members; "": it is the only one
}

// StartEtcd starts a server that keeps its data in dir, and returns when it
// is ready.
func StartEtcd(dir string, opts EtcdOptions) (*Etcd, error) {
	if _, err := exec.LookPath("etcd"); err != nil {
		return nil, ErrNoEtcd
	}
	e := newEtcd(dir, "one", opts)
	if err := e.takePorts(); err != nil {
		return nil, err
	}
	if err := e.start(); err != nil {
		return nil, err
	}
	return e, nil
}

func newEtcd(dir, member string, opts EtcdOptions) *Etcd {
	e := &Etcd{daemon: daemon{name: "etcd", dir: dir}, opts: opts, member: member}
	e.command, e.hello = e.etcd, e.healthy
	return e
}

func (e *Etcd) takePorts() (err error) {
	for _, port := range []*int{&e.port, &e.peer, &e.metrics} {
		if *port, err = takePort(); err != nil {
			return err
		}
	}
	e.advertised = "http://" + local(e.peer)
	return nil
}

// RunEtcd starts a server for a test, and stops it at its end.
func RunEtcd(t testing.TB, opts EtcdOptions) *Etcd {
	t.Helper()
	opts.Args = append([]string{"--unsafe-no-fsync"}, opts.Args...) // see unsynced
	e, err := StartEtcd(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Kill() })
	return e
}

// URL names the server as pawl's --store does.
func (e *Etcd) URL() string {
	if e.opts.Cert != "" {
		return "etcds://" + e.Addr() + "?ca=" + e.opts.CA
	}
	return "etcd://" + e.Addr()
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (e *Etcd) data() string { return filepath.Join(e.dir, "data") }

func (e *Etcd) etcd() *exec.Cmd {
	scheme := "http://"
	if e.opts.Cert != "" {
		scheme = "https://"
	}
	clients := scheme + e.Addr()
	cluster := cmp.Or(e.cluster, e.member+"="+e.advertised)
	args := []string{
		"--name", e.member, "--data-dir", e.data(), "--logger", "zap",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", "http://" + local(e.peer), "--initial-advertise-peer-urls", e.advertised, "--initial-cluster", cluster,
		"--listen-metrics-urls", "http://" + local(e.metrics),
	}
	if e.opts.Cert != "" {
		args = append(args, "--cert-file", e.opts.Cert, "--key-file", e.opts.Key)
	}
	cmd := exec.Command("etcd", append(args, e.opts.Args...)...)
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

// healthy tells whether the server has a leader. It would have ended if another
// had taken one of its ports.
func (e *Etcd) healthy(int) bool {
	var health struct{ Health string }
	text, err := e.get("/health")
	return err == nil && json.Unmarshal([]byte(text), &health) == nil && health.Health == "true"
}

func (e *Etcd) get(path string) (string, error) {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://" + local(e.metrics) + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// Metric returns one of the server's counters, by its full name.
func (e *Etcd) Metric(name string) (float64, error) {
	text, err := e.get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("etcd has no metric %s", name)
}

// Restart kills the server if it runs, and starts it again on the same ports,
// with its data or, without keep, with none.
func (e *Etcd) Restart(keep bool) error {
	e.Kill()
	if !keep {
		if err := e.wipe(); err != nil {
			return err
		}
	}
	return e.start()
}

func (e *Etcd) wipe() error {
	if err := os.RemoveAll(e.data()); err != nil {
		return fmt.Errorf("remove the data of etcd: %w", err)
	}
	return nil
}
