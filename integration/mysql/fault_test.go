package mysql

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
)

// A row that is locked for longer than the server lets anybody wait.
func TestMySQLLockWaitTimeout(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{"--innodb-lock-wait-timeout=1"}})
	s := sqltest.OpenMySQL(t, m.URL())
	h := storetest.Mutex("n", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	db := sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl")
	tx, err := db.BeginTx(await.Context(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	sqltest.Exec(t, tx, "SELECT * FROM pawl_queues FOR UPDATE")
	left := make(chan error, 1)
	go func() {
		_, err := s.Leave(await.Context(t), storetest.Ref(h))
		left <- err
	}()
	time.Sleep(2500 * time.Millisecond)
	select {
	case err := <-left:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	tx.Rollback()
	if err := <-left; err != nil {
		t.Errorf("leave: %v", err)
	}
	if ids := storetest.IDs(t, s, "n"); len(ids) != 0 {
		t.Errorf("in the queue are %v", ids)
	}
}

// What is wrong is said, and what to do about it.
func TestMySQLErrors(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	admin := sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl")
	for _, prefix := range []string{"", "newer_", "older_"} {
		text, err := mysqlstore.Schema(prefix)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // it may be run again
			for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
				sqltest.Exec(t, admin, strings.TrimSuffix(statement, ";"))
			}
		}
	}
	for _, statement := range []string{
		"UPDATE newer_version SET version = version + 1", "UPDATE older_version SET version = 0",
		"CREATE USER app IDENTIFIED BY 'secret'", "CREATE USER reader IDENTIFIED BY 'secret'", "CREATE USER guest IDENTIFIED BY 'secret'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.pawl_queues TO app",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.pawl_records TO app",
		"GRANT SELECT ON pawl.pawl_version TO app, reader", "GRANT SELECT ON pawl.pawl_queues TO reader",
	} {
		sqltest.Exec(t, admin, statement)
	}
	at := func(user, db, params string) string { return "mysql://" + user + "@" + m.Addr() + "/" + db + params }
	t.Run("Rights", func(t *testing.T) { // those that Schema speaks of are enough
		for _, create := range []string{"", "?create=true"} {
			s, err := mysql.Open(at("app:secret", "pawl", create), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := storetest.Mutex("n", time.Minute)
			storetest.Enter(t, s, c, driver.Holding)
			storetest.Leave(t, s, c)
			if _, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: driver.NewID(), Value: []byte("x")}); err != nil {
				t.Error(err)
			}
		}
	})
	check := func(t *testing.T, url string, permanent bool, want string) {
		t.Helper()
		s, err := mysql.Open(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err = s.Enter(await.Context(t), storetest.Mutex("🚚", time.Minute)); err == nil {
			t.Fatal("no error")
		}
		if driver.IsPermanent(err) != permanent || !strings.Contains(err.Error(), want) {
			t.Errorf("permanent %v: %v\nwant %v, with %q", driver.IsPermanent(err), err, permanent, want)
		}
		_, addr, _ := strings.Cut(url, "@")
		if addr, _, _ = strings.Cut(addr, "/"); !strings.Contains(addr, ":") {
			addr += ":3306"
		}
		if text := err.Error(); strings.Contains(text, "secret") || !strings.Contains(text, `mysql: enter "🚚": `) || strings.Count(text, addr) != 1 {
			t.Errorf("error %v", err)
		}
	}
	for _, tt := range []struct {
		name, url string
		permanent bool
		want      string
	}{
		{"WrongPassword", at("app:wrong", "pawl", ""), true, "Access denied"},
		{"NoDatabase", at("root", "none", ""), true, "Unknown database 'none'"},
		{"NoRightToTheDatabase", at("guest:secret", "pawl", ""), true, "Access denied"},
		{"NoTables", at("root", "pawl", "?prefix=none_"), true, "pawl schema mysql"},
		{"NoRightToCreate", at("app:secret", "pawl", "?prefix=none_&create=true"), true, "mysqlstore.Schema"},
		{"NoRights", at("reader:secret", "pawl", ""), true, "mysqlstore.Schema"},
		{"Newer", at("root", "pawl", "?prefix=newer_"), true, "use a newer one"},
		{"Older", at("root", "pawl", "?prefix=older_"), true, "pawl schema mysql"},
		{"Unreachable", "mysql://x:secret@127.0.0.1:1/pawl", false, "127.0.0.1:1"},
		{"Unresolved", "mysql://x:secret@no.such.host.invalid/pawl", false, "no.such.host.invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, tt.url, tt.permanent, tt.want) })
	}
	t.Run("ReadOnly", func(t *testing.T) {
		sqltest.Exec(t, admin, "SET GLOBAL read_only = ON")
		defer sqltest.Exec(t, admin, "SET GLOBAL read_only = OFF")
		check(t, at("app:secret", "pawl", ""), false, "read-only")
	})
	// A database of the caller's own, whose connections would report what does not
	// last.
	for params, want := range map[string]string{
		"autocommit=0": "autocommit=1", "tx_isolation=%27READ-UNCOMMITTED%27": "isolation level", "sql_safe_updates=1": "sql_safe_updates=0",
		"completion_type=1": "completion_type=0", "completion_type=%27RELEASE%27": "completion_type=0",
		"sql_mode=ORACLE": "sql_mode ORACLE", "sql_mode=%27ANSI_QUOTES,EMPTY_STRING_IS_NULL%27": "sql_mode EMPTY_STRING_IS_NULL",
	} {
		s, err := mysqlstore.New(sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl?"+params), &mysqlstore.Options{Create: true, Prefix: "fleeting_"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Enter(await.Context(t), storetest.Mutex("n", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v", params, err)
		}
		if err := s.CreateSchema(await.Context(t)); !driver.IsPermanent(err) {
			t.Errorf("create tables with %s: %v", params, err)
		}
	}
	for _, bad := range []string{
		"mysql://u:secret@h", "mysql://u:secret@h/", "mysql:///db", "mysql://u:secret@h/a/b", "http://u:secret@h/db", "mysql://u:sec%ret@h/db",
		"mysql://u:secret@h/db?create=perhaps", "mysql://u:secret@h/db?prefix=a%60b", "mysql://u:secret@h/db?prefix=" + strings.Repeat("x", 41),
		"mysql://u:secret@h:65536/db", "mysql://u:secret@h/db?no_such=1", "mysql://u:secret@h/db?timeout=soon", "mysql://u:secret@h/db?socket=/s", "",
	} {
		if _, err := mysql.Open(bad, nil); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("open %q: %v", bad, err)
		}
	}
	if _, err := mysqlstore.New(nil, nil); err == nil {
		t.Error("a store without a database")
	}
}
