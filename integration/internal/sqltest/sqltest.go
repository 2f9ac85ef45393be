// Package sqltest is what the tests of the databases share.
package sqltest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/mysqlstore"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
	"github.com/pawl-go/pawl/pgstore"
	"github.com/pawl-go/pawl/pgstore/pgx"
)

// ShortTTL is for claims that run out while a test waits: a commit takes long
// where the disk is busy.
const ShortTTL = 1500 * time.Millisecond

// OpenPostgres opens a store that ends with the test. Without options, it makes
// its tables.
func OpenPostgres(t testing.TB, url string, o *pgstore.Options) *pgstore.Store {
	t.Helper()
	if o == nil {
		o = &pgstore.Options{Create: true}
	}
	s, err := pgx.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// OpenMySQL opens a store that makes its tables and ends with the test.
func OpenMySQL(t testing.TB, url string) *mysqlstore.Store {
	t.Helper()
	s, err := mysql.Open(url, &mysqlstore.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// OpenDB opens a database, by database/sql, that ends with the test.
func OpenDB(t testing.TB, driverName, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Exec executes a statement that must succeed, on a database, a connection or a
// transaction.
func Exec(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(await.Context(t), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// LockWaits asks MySQL how many wait for a row. The table innodb_lock_waits is no
// use to who asks often: what it tells is kept until nobody has asked for 100 ms.
const LockWaits = `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`
