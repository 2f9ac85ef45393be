package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// ErrNoPgBouncer: the pooler's program is not installed.
var ErrNoPgBouncer = errors.New("pgbouncer is not installed: `make test` installs it, or: apt-get install pgbouncer")

// PgBouncer is a pooler in front of a server that lets everybody in.
type PgBouncer struct{ daemon }

// RunPgBouncer starts a pooler for a test, in mode "session" or "transaction",
// and removes it at its end.
func RunPgBouncer(t testing.TB, p *Postgres, mode string) *PgBouncer {
	t.Helper()
	b, err := startPgBouncer(p, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Kill()
		os.RemoveAll(b.dir)
	})
	return b
}

func startPgBouncer(p *Postgres, mode string) (*PgBouncer, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path = "/usr/sbin/pgbouncer"; !isFile(path) {
			return nil, ErrNoPgBouncer
		}
	}
	account, err := someUser("postgres", "nobody")
	if err != nil && os.Getuid() == 0 {
		return nil, fmt.Errorf("start pgbouncer, which refuses to run as root: %w", err)
	}
	dir, err := account.folder("pgbouncer")
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{daemon{name: "pgbouncer", dir: dir}}
	config := filepath.Join(dir, "pgbouncer.ini")
	b.command = func() *exec.Cmd { return account.as(exec.Command(path, config)) }
	b.hello = func(int) bool {
		c, err := net.DialTimeout("tcp", b.Addr(), time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	if b.port, err = takePort(); err == nil {
		text := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\n"+
			"listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = %s\n", p.port, b.port, mode)
		err = os.WriteFile(config, []byte(text), 0o644)
	}
	if err == nil {
		err = b.start()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}
