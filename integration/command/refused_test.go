//go:build unix

package command

import (
	"net"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

// refused checks that a run fails because of the store, and how it tells.
func refused(t *testing.T, url, want string) {
	t.Helper()
	p := newBundle(t, url).Run("run", "--no-wait", "x", "true").Want(69)
	if out := p.Printed(); !strings.Contains(out, want) || strings.Contains(out, "busy") || strings.Contains(out, "-word") || strings.Contains(out, "sesame") || strings.Count(out, "\n") > 3 {
		t.Errorf("%s: want %q:\n%s", url, want, out)
	}
}

// inner checks that a pawl inside a run is refused, and told why, rather than
// left to lock elsewhere.
func inner(t *testing.T, url string) {
	t.Helper()
	p := newBundle(t, url).Run("run", "outer", proctest.Pawl, "run", "--no-wait", "inner", "true").Want(69)
	if out := p.Printed(); !strings.Contains(out, "set PAWL_STORE there") || strings.Contains(out, "sesame") {
		t.Error(out)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, url := range []string{"redis://:pass-word@ADDR", "etcd://u:pass-word@ADDR,ADDR", "etcd://ADDR", "zk://u:pass-word@ADDR,ADDR",
		"postgres://u:pass-word@ADDR/db", "mysql://u:pass-word@ADDR/db"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			refused(t, strings.ReplaceAll(url, "ADDR", addr), "refused")
		})
	}
}

// There is no reply, and the connection stands.
func TestNobodyReplies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, url := range []string{"redis://ADDR", "etcd://u:pass-word@ADDR", "etcd://ADDR", "zk://ADDR", "postgres://u@ADDR/db", "mysql://u@ADDR/db"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			refused(t, strings.ReplaceAll(url, "ADDR", l.Addr().String()), "")
		})
	}
}

func TestRefusedByPostgres(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Password: "open-sesame"})
	url := p.URL()
	refused(t, strings.Replace(url, "open-sesame", "pass-word", 1), "password authentication failed")
	refused(t, strings.Replace(url, "/postgres?", "/nowhere?", 1), `database "nowhere" does not exist`)
	refused(t, url, "pawl schema postgres")
	newBundle(t, url+"&create=true").Run("run", "x", "true").Want(0)
	inner(t, url)
	db := sqlOpen(t, "pgx", url)
	sqlRun(t, db, "CREATE ROLE reader LOGIN PASSWORD 'open-sesame'", "GRANT USAGE ON SCHEMA pawl TO reader", "GRANT SELECT ON ALL TABLES IN SCHEMA pawl TO reader")
	refused(t, strings.Replace(url, "//postgres:", "//reader:", 1), "permission denied")
	sqlRun(t, db, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	refused(t, url, "read-only")
	refused(t, url+"&schema=other", "pawl schema postgres")
}

func TestRefusedByMySQL(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	db := sqlOpen(t, "mysql", "root@tcp("+m.Addr()+")/pawl")
	sqlRun(t, db, "CREATE USER app@'%' IDENTIFIED BY 'open-sesame'", "GRANT SELECT, CREATE ON pawl.* TO app@'%'")
	app := strings.Replace(m.URL(), "root@", "app:open-sesame@", 1)
	refused(t, strings.Replace(app, "open-sesame", "pass-word", 1), "Access denied")
	refused(t, strings.Replace(m.URL(), "/pawl", "/nowhere", 1), "nowhere")
	refused(t, app, "pawl schema mysql")
	newBundle(t, m.URL()+"?create=true").Run("run", "x", "true").Want(0)
	refused(t, app, "denied")
	sqlRun(t, db, "GRANT ALL ON pawl.* TO app@'%'")
	newBundle(t, app).Run("run", "x", "true").Want(0)
	inner(t, app)
	sqlRun(t, db, "SET GLOBAL read_only = 1")
	refused(t, app, "read-only")
}

func TestRefusedByEtcd(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e)
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "open-sesame")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.UserAdd(ctx, "app", "open-sesame")), second(c.RoleAdd(ctx, "app")), second(c.UserGrantRole(ctx, "app", "app")),
		second(c.RoleGrantPermission(ctx, "app", "pawl/", "pawl0", 2)),
		second(c.UserAdd(ctx, "reader", "open-sesame")), second(c.RoleAdd(ctx, "reader")), second(c.UserGrantRole(ctx, "reader", "reader")),
		second(c.RoleGrantPermission(ctx, "reader", "pawl/", "pawl0", 0)),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) string { return strings.Replace(e.URL(), "//", "//"+user+"@", 1) }
	newBundle(t, as("app:open-sesame")).Run("run", "x", "true").Want(0)
	newBundle(t, as("app:open-sesame")).doctor(0)
	inner(t, as("app:open-sesame"))
	refused(t, as("app:pass-word"), "authentication failed")
	refused(t, as("reader:open-sesame"), "permission denied")
	refused(t, e.URL(), "user")
	newBundle(t, as("app:wrong-word")).doctor(69).want(t, "fail", "reachable", "")
	newBundle(t, as("reader:open-sesame")).doctor(78).want(t, "fail", "lock", "permission denied")
}

func second[T any](_ T, err error) error { return err }

func TestRefusedByZooKeeper(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	as := func(user string) string { return strings.Replace(z.URL(), "//", "//"+user+"@", 1) }
	newBundle(t, as("me:open-sesame")).Run("run", "x", "true").Want(0)
	inner(t, as("me:open-sesame"))
	refused(t, as("me:pass-word"), "no permission")
	refused(t, z.URL(), "no permission")
}
