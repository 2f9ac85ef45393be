//go:build unix

package command

import (
	"database/sql"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// sqlRun runs statements, as an administrator would.
func sqlRun(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func sqlOpen(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// create runs what `pawl schema` prints.
func (b *bundle) create(db *sql.DB, args ...string) {
	b.T.Helper()
	text := regexp.MustCompile("(?m)^--.*\n").ReplaceAllString(b.Run(append([]string{"schema"}, args...)...).Want(0).Out.String(), "")
	for s := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(s) != "" {
			sqlRun(b.T, db, s)
		}
	}
}

func TestDoctorPostgres(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "fsync=on"}})
	b := newBundle(t, p.URL()+"&schema=it%27s+mine")
	db := sqlOpen(t, "pgx", p.URL())
	b.doctor(78).want(t, "fail", "lock", "does not exist")
	b.create(db, "postgres", "--schema", "it's mine")
	r := b.doctor(0)
	r.healthy(t)
	r.want(t, "ok", "reachable", "PostgreSQL ")
	r.want(t, "ok", "pooler", "none")
	r.want(t, "ok", "transactions", "none")
	r.want(t, "ok", "durability", "")
	if r.Clock == nil {
		t.Error("the clock was not compared")
	}

	sqlRun(t, db, "CREATE ROLE reader LOGIN", `GRANT USAGE ON SCHEMA "it's mine" TO reader`, "ALTER SYSTEM SET synchronous_commit = off",
		"ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
	reader := newBundle(t, strings.Replace(b.URL, "postgres@", "reader@", 1))
	reader.doctor(78).want(t, "fail", "lock", "permission denied")
	r = b.doctor(1)
	r.want(t, "warn", "durability", "synchronous_commit")
	r.want(t, "warn", "durability", "full_page_writes")
	sqlRun(t, db, "ALTER ROLE postgres SET default_transaction_read_only = on")
	r = b.doctor(78)
	r.want(t, "fail", "replication", "read_only")
	r.want(t, "fail", "lock", "read-only")
	newBundle(t, strings.Replace(b.URL, "/postgres?", "/nowhere?", 1)).doctor(69).want(t, "fail", "reachable", "does not exist")

	// Of several servers it looks at the one that the store would use.
	sqlRun(t, sqlOpen(t, "pgx", p.URL()+"&default_transaction_read_only=off"), "ALTER ROLE postgres RESET default_transaction_read_only")
	replica := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "default_transaction_read_only=on"}})
	r = newBundle(t, strings.Replace(b.URL, p.Addr(), replica.Addr()+","+p.Addr(), 1)).doctor(1)
	r.want(t, "ok", "replication", "")
	r.want(t, "ok", "lock", "taken and released")
}

func TestDoctorPostgresPooler(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "fsync=off"}})
	session, transaction := servers.RunPgBouncer(t, p, "session"), servers.RunPgBouncer(t, p, "transaction")
	r := newBundle(t, p.URLAt(session.Addr())+"&create=true").doctor(1)
	r.want(t, "warn", "durability", "fsync")
	r.want(t, "ok", "pooler", "session mode")
	newBundle(t, p.URLAt(transaction.Addr())).doctor(1).want(t, "warn", "pooler", "transaction mode")
	r = newBundle(t, p.URLAt(transaction.Addr())+"&listen=false&default_query_exec_mode=exec").doctor(1)
	r.want(t, "note", "pooler", "transaction mode")
	r.want(t, "ok", "lock", "taken and released")
}

func TestDoctorMySQL(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	b := newBundle(t, m.URL())
	db := sqlOpen(t, "mysql", "root@tcp("+m.Addr()+")/pawl")
	b.doctor(78).want(t, "fail", "lock", "doesn't exist")
	b.create(db, "mysql")
	sqlRun(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	r := b.doctor(0)
	r.healthy(t)
	r.want(t, "ok", "reachable", "MariaDB 1")
	if r.Clock == nil {
		t.Error("the clock was not compared")
	}

	sqlRun(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 2", "CREATE USER reader@'%' IDENTIFIED BY 'open-sesame'", "GRANT SELECT ON pawl.* TO reader@'%'")
	b.doctor(1).want(t, "warn", "durability", "innodb_flush_log_at_trx_commit is 2")
	user := func(password string) *bundle {
		return newBundle(t, strings.Replace(m.URL(), "root@", "reader:"+password+"@", 1))
	}
	user("open-sesame").doctor(78).want(t, "fail", "lock", "denied")
	user("wrong-word").doctor(69).want(t, "fail", "reachable", "denied")
	sqlRun(t, db, "GRANT ALL ON pawl.* TO reader@'%'", "SET GLOBAL read_only = 1")
	r = user("open-sesame").doctor(78)
	r.want(t, "fail", "replication", "read_only")
	r.want(t, "fail", "lock", "read-only")
	newBundle(t, strings.Replace(m.URL(), "/pawl", "/nowhere", 1)).doctor(69).want(t, "fail", "reachable", "nowhere")
}

func TestDoctorEtcd(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	e := servers.RunEtcd(t, servers.EtcdOptions{Args: []string{"--quota-backend-bytes", fmt.Sprint(quota)}})
	b := newBundle(t, e.URL())
	r := b.doctor(0)
	r.healthy(t)
	r.want(t, "ok", "reachable", "etcd 3.")
	r.want(t, "ok", "clock", "no time")
	r.want(t, "note", "cluster", "one member")
	newBundle(t, e.URL()+",127.0.0.1:1").doctor(1).want(t, "warn", "member 127.0.0.1:1", "")

	c := dialEtcd(t, e)
	await.That(t, "the server takes all that is put into it", func() bool {
		_, err := c.Put(t.Context(), "fill", strings.Repeat("x", 1<<20))
		return err != nil // only then the server raises the alarm
	})
	r = b.doctor(78)
	r.want(t, "fail", "alarms", "NOSPACE")
	r.want(t, "fail", "lock", "space")
}

func dialEtcd(t *testing.T, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr()}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDoctorZooKeeper(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"minSessionTimeout=2000", "maxSessionTimeout=25000"}})
	b := newBundle(t, z.URL()+"/some/root")
	r := b.doctor(0)
	r.healthy(t)
	r.want(t, "ok", "reachable", "ZooKeeper 3.")
	r.want(t, "ok", "sessions", "2s to 25s")
	r.want(t, "note", "ensemble", "one server")
	if r.Clock == nil {
		t.Error("the clock was not compared")
	}
	b.doctor(1, "--ttl", "30s").want(t, "warn", "sessions", "25s at most")
	b.doctor(1, "--ttl", "1s").want(t, "warn", "sessions", "2s at least")
	mine := strings.Replace(z.URL(), "zk://", "zk://me:open-sesame@", 1) + "/mine"
	newBundle(t, mine).doctor(0).healthy(t)
	newBundle(t, strings.Replace(mine, "sesame", "barley", 1)).doctor(78).want(t, "fail", "lock", "")
	newBundle(t, z.URL()+",127.0.0.1:1").doctor(1).want(t, "warn", "member", "refused")

	closes, err := net.Listen("tcp", "127.0.0.1:0") // as a server with too many connections
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes.Close() })
	go func() {
		for {
			c, err := closes.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	newBundle(t, "zk://"+closes.Addr().String()).doctor(69).want(t, "fail", "reachable", "closes the connection")
}
