package servers

import (
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

// ErrNoMariaDB: the server's programs are not installed.
var ErrNoMariaDB = errors.New("mariadbd is not installed: `make test` installs it, or: apt-get install mariadb-server-core mariadb-client-core")

// MariaDBOptions of a server.
type MariaDBOptions struct {
	Args []string // further arguments, as in "--innodb-lock-wait-timeout=1"
}

// MariaDB is a server that was started here.
type MariaDB struct{ daemon }

// StartMariaDB starts a server with a data folder of its own, and returns when it
// accepts connections: for everybody, as root without a password, with a
// database pawl. Remove ends it and removes the folder.
func StartMariaDB(opts MariaDBOptions) (*MariaDB, error) {
	server, err := exec.LookPath("mariadbd")
	if err != nil {
		if server = "/usr/sbin/mariadbd"; !isFile(server) {
			return nil, ErrNoMariaDB
		}
	}
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return nil, ErrNoMariaDB
	}
	account, err := someUser("mysql", "nobody")
	if err != nil && os.Getuid() == 0 {
		return nil, fmt.Errorf("start mariadbd, which is not to run as root: %w", err)
	}
	dir, err := account.folder("my")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	// Each has a tmpdir of its own: a server that starts removes all temporary
	// tables there, also those of others.
	//
	// On a machine that is short of memory or of kernel resources for asynchronous
	// writes it can fail, and succeed a moment later.
	installdb := func(data string) error {
		for attempt := 1; ; attempt++ {
			cmd := account.as(exec.Command(install, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db",
				"--skip-name-resolve", "--datadir="+data, "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
				"--innodb-use-native-aio=0", "--tmpdir="+dir))
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err == nil {
				return nil
			}
			if attempt == 3 {
				return fmt.Errorf("mariadb-install-db: %w: %s", err, reason(out))
			}
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			time.Sleep(time.Duration(attempt) * time.Second)
		}
	}
	if err := account.copyOf(server, data, installdb); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	init := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(init, []byte("CREATE DATABASE IF NOT EXISTS pawl;\n"), 0o644); err != nil {
		return nil, err
	}
	m := &MariaDB{daemon{name: "mariadbd", dir: dir}}
	m.command = func() *exec.Cmd {
		cmd := account.as(exec.Command(server, append([]string{
			"--no-defaults", "--datadir=" + data, "--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(m.port), "--skip-name-resolve", "--init-file=" + init,
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-use-native-aio=0", "--max-connections=300",
			"--tmpdir=" + dir,
		}, opts.Args...)...))
		cmd.Dir = dir
		return cmd
	}
	m.hello = m.accepts
	if m.port, err = takePort(); err == nil {
		err = m.start()
	}
	if err != nil {
		m.Remove()
		return nil, err
	}
	return m, nil
}

// reason returns the lines that speak of errors, for what comes after them is a
// page of advice; all lines if there are none.
func reason(out []byte) string {
	var lines []string
	for line := range strings.Lines(string(out)) {
		if lower := strings.ToLower(line); strings.Contains(lower, "error") || strings.Contains(lower, "fail") || strings.Contains(lower, "killed") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		return string(out)
	}
	return strings.Join(lines, "; ")
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// RunMariaDB starts a server for a test, and removes it at its end.
func RunMariaDB(t testing.TB, opts MariaDBOptions) *MariaDB {
	t.Helper()
	opts.Args = append([]string{"--innodb-flush-log-at-trx-commit=2"}, opts.Args...) // see unsynced
	m, err := StartMariaDB(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Remove)
	return m
}

// URL names the server as pawl's --store does.
func (m *MariaDB) URL() string { return m.URLAt(m.Addr()) }

// URLAt is URL for a proxy at addr.
func (m *MariaDB) URLAt(addr string) string { return "mysql://root@" + addr + "/pawl" }

// accepts tells whether the server of that process greets its clients.
func (m *MariaDB) accepts(pid int) bool {
	text, err := os.ReadFile(filepath.Join(m.dir, "pid"))
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(pid) {
		return false
	}
	c, err := net.DialTimeout("tcp", m.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	hello := make([]byte, 5)
	n, _ := c.Read(hello)
	return n == 5 && hello[4] == 10 // the version of the protocol; an error would be 255
}

// Remove ends the server, and removes its data.
func (m *MariaDB) Remove() {
	m.Kill()
	os.RemoveAll(m.dir)
}
