package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
)

// What passes does not end a Lock that waits: it goes on when it has passed. What
// does not pass does.
func TestMySQLPassingErrors(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{"--max-connections=30"}})
	root := "root@tcp(" + m.Addr() + ")/pawl"
	admin := sqltest.OpenDB(t, "mysql", root)
	admin.SetMaxOpenConns(1)
	if err := sqltest.OpenMySQL(t, m.URL()).CreateSchema(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	sqltest.Exec(t, admin, "CREATE USER app, other")
	sqltest.Exec(t, admin, "GRANT ALL ON pawl.* TO app, other")
	set := func(begin, end string) func(*testing.T) func() {
		return func(t *testing.T) func() {
			sqltest.Exec(t, admin, begin)
			return func() { sqltest.Exec(t, admin, end) }
		}
	}
	occupy := func(user string) func(*testing.T) func() {
		return func(t *testing.T) func() {
			db := sqltest.OpenDB(t, "mysql", user+"@tcp("+m.Addr()+")/pawl")
			var conns []*sql.Conn
			for {
				c, err := db.Conn(await.Context(t))
				if err != nil {
					break
				}
				conns = append(conns, c)
			}
			return func() {
				for _, c := range conns {
					c.Close()
				}
				db.Close()
			}
		}
	}
	at := strings.Replace(m.URL(), "root@", "app@", 1)
	for _, tt := range []struct {
		name, code string
		permanent  bool
		begin      func(t *testing.T) (end func())
	}{
		{"TooManyConnections", "1040", false, occupy("other")},
		{"TooManyOfTheUser", "1226", false, func(t *testing.T) func() {
			sqltest.Exec(t, admin, "GRANT USAGE ON *.* TO app WITH MAX_USER_CONNECTIONS 1")
			free := occupy("app")(t)
			return func() {
				free()
				sqltest.Exec(t, admin, "GRANT USAGE ON *.* TO app WITH MAX_USER_CONNECTIONS 0")
			}
		}},
		{"ReadOnly", "1290", false, set("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF")},
		{"AccountLocked", "4151", true, set("ALTER USER app ACCOUNT LOCK", "ALTER USER app ACCOUNT UNLOCK")},
		{"PasswordExpired", "1820", true, set("ALTER USER app PASSWORD EXPIRE", "ALTER USER app PASSWORD EXPIRE NEVER")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			end := sync.OnceFunc(tt.begin(t))
			defer end()
			open := func() driver.Store {
				s, err := mysql.Open(at, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			_, err := open().Enter(await.Context(t), storetest.Mutex("n", time.Minute))
			if err == nil || driver.IsPermanent(err) != tt.permanent || !strings.Contains(err.Error(), tt.code) {
				t.Fatalf("permanent %v: %v, want %v, %s", driver.IsPermanent(err), err, tt.permanent, tt.code)
			}
			if tt.permanent {
				return
			}
			failed := make(chan struct{})
			once := sync.OnceFunc(func() { close(failed) })
			locked := make(chan error, 1)
			s := open()
			go func() {
				c := pawl.New(s, &pawl.Options{Observer: func(e pawl.Event) {
					if e.Err != nil {
						once()
					}
				}})
				lease, err := c.Mutex("n").Lock(await.Context(t))
				if err == nil {
					err = lease.Unlock(context.WithoutCancel(t.Context()))
				}
				locked <- err
			}()
			await.Value(t, "an attempt fails", failed)
			end()
			if err := await.Value(t, "the lock is taken when that is over", locked); err != nil {
				t.Errorf("lock: %v", err)
			}
		})
	}
	for kill, code := range map[string]string{"KILL QUERY": "1317", "KILL CONNECTION": ""} {
		t.Run(kill, func(t *testing.T) {
			s := sqltest.OpenMySQL(t, m.URL())
			h := storetest.Mutex(kill, time.Minute)
			storetest.Enter(t, s, h, driver.Holding)
			tx, err := sqltest.OpenDB(t, "mysql", root).BeginTx(await.Context(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			var locker int64 // may still be shown as at it when it has its reply
			if err := tx.QueryRowContext(await.Context(t), "SELECT CONNECTION_ID()").Scan(&locker); err != nil {
				t.Fatal(err)
			}
			sqltest.Exec(t, tx, fmt.Sprintf("UPDATE pawl_queues SET asked = asked + 1 WHERE name = '%s'", kill))
			left := make(chan error, 1)
			go func() {
				_, err := s.Leave(await.Context(t), storetest.Ref(h))
				left <- err
			}()
			await.That(t, "it waits for the row, and is ended", func() bool {
				var id int64
				query := "SELECT id FROM information_schema.processlist WHERE command IN ('Query', 'Execute') AND info LIKE 'UPDATE pawl_queues%' AND id <> ? LIMIT 1"
				if err := admin.QueryRowContext(await.Context(t), query, locker).Scan(&id); err == nil {
					admin.ExecContext(await.Context(t), fmt.Sprintf("%s %d", kill, id)) // unless it has ended
				}
				return len(left) > 0
			})
			if err := await.Value(t, "it is told", left); err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), code) {
				t.Errorf("permanent %v: %v, want %s", driver.IsPermanent(err), err, code)
			}
		})
	}
}
