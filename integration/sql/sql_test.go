package sql

import (
	"database/sql"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/pgstore"
)

// sqlServer is what the tests of both databases need of a server.
type sqlServer interface {
	Addr() string
	URLAt(addr string) string
	Kill()
	Restart() error
	Pause()
	Resume()
}

// sqlEngine is a server, and how to open a store on it through addr.
type sqlEngine struct {
	sqlServer
	queues, records string // tables
	open            func(t testing.TB, addr string) driver.Store
	db              func(t testing.TB) *sql.DB // plain
}

func (e *sqlEngine) store(t testing.TB) driver.Store { return e.open(t, e.Addr()) }

// forget does what the sweep does to a row that nobody is in: it raises the mark,
// and removes the row.
func (e *sqlEngine) forget(t testing.TB, db *sql.DB, name string) {
	t.Helper()
	raise := "ON CONFLICT (name) DO UPDATE SET version = greatest(r.version, excluded.version)"
	into := "INSERT INTO " + e.records + " AS r"
	if e.queues == "pawl_queues" {
		into, raise = "INSERT INTO "+e.records, "ON DUPLICATE KEY UPDATE version = GREATEST(version, VALUES(version))"
	}
	sqltest.Exec(t, db, into+" (name, version, value, expires) SELECT '', last, NULL, 0 FROM "+e.queues+" WHERE name = '"+name+"' AND body = '' "+raise)
	sqltest.Exec(t, db, "DELETE FROM "+e.queues+" WHERE name = '"+name+"' AND body = ''")
}

// onSQL runs a test on both databases, each on a server of its own.
func onSQL(t *testing.T, f func(t *testing.T, e *sqlEngine)) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		p := servers.RunPostgres(t, servers.PostgresOptions{})
		f(t, &sqlEngine{
			sqlServer: p, queues: "pawl.queues", records: "pawl.records",
			open: func(t testing.TB, addr string) driver.Store { return sqltest.OpenPostgres(t, p.URLAt(addr), nil) },
			db:   func(t testing.TB) *sql.DB { return sqltest.OpenDB(t, "pgx", p.URL()) },
		})
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{"--innodb-lock-wait-timeout=1"}})
		f(t, &sqlEngine{
			sqlServer: m, queues: "pawl_queues", records: "pawl_records",
			open: func(t testing.TB, addr string) driver.Store { return sqltest.OpenMySQL(t, m.URLAt(addr)) },
			db:   func(t testing.TB) *sql.DB { return sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl") },
		})
	})
}

// newSQL makes a store on a database of the caller's, without notifications.
func newSQL(t testing.TB, e *sqlEngine, db *sql.DB) driver.Store {
	t.Helper()
	var s driver.Store
	var err error
	if e.queues == "pawl.queues" {
		s, err = pgstore.New(db, nil)
	} else {
		s, err = mysqlstore.New(db, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
