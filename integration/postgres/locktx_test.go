package postgres

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/pgstore"
)

// A transaction that was let wait for the lock sees what was written under it; one
// that would not is refused.
func TestPostgresLockTxIsolation(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	db := sqltest.OpenDB(t, "pgx", p.URL())
	sqltest.Exec(t, db, "CREATE TABLE seats (name text)")
	for level, fit := range map[sql.IsolationLevel]bool{
		sql.LevelDefault: true, sql.LevelReadUncommitted: true, sql.LevelReadCommitted: true,
		sql.LevelRepeatableRead: false, sql.LevelSerializable: false,
	} {
		t.Run(level.String(), func(t *testing.T) {
			ctx := await.Context(t)
			begin := func(level sql.IsolationLevel) *sql.Tx {
				t.Helper()
				tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { tx.Rollback() })
				return tx
			}
			sqltest.Exec(t, db, "TRUNCATE seats")
			if !fit {
				for _, lock := range []func(tx *sql.Tx) error{
					func(tx *sql.Tx) error { return pgstore.LockTx(ctx, tx, "seat") },
					func(tx *sql.Tx) error { _, err := pgstore.TryLockTx(ctx, tx, "seat"); return err },
				} {
					tx := begin(level)
					err := lock(tx)
					if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "read committed") {
						t.Errorf("%v", err)
					}
					other := begin(sql.LevelDefault)
					if ok, err := pgstore.TryLockTx(ctx, other, "seat"); !ok || err != nil {
						t.Errorf("who was refused has locked: %v, %v", ok, err)
					}
					other.Rollback()
					tx.Rollback()
				}
				return
			}
			a, b := begin(level), begin(level)
			if err := pgstore.LockTx(ctx, a, "seat"); err != nil {
				t.Fatal(err)
			}
			locked := make(chan error, 1)
			go func() { locked <- pgstore.LockTx(ctx, b, "seat") }()
			for waiting := 0; waiting == 0; { // until it has its snapshot
				if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting); err != nil {
					t.Fatal(err)
				}
			}
			sqltest.Exec(t, a, "INSERT INTO seats VALUES ('1A')")
			if err := a.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-locked; err != nil {
				t.Fatal(err)
			}
			var taken int
			if err := b.QueryRowContext(ctx, "SELECT count(*) FROM seats").Scan(&taken); err != nil || taken != 1 {
				t.Errorf("%d seats are taken, %v", taken, err)
			}
		})
	}
}

// A lock belongs to the transaction, but for what was locked after a savepoint to
// which it goes back.
func TestPostgresLockTxSavepoint(t *testing.T) {
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	db := sqltest.OpenDB(t, "pgx", p.URL())
	ctx := await.Context(t)
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		return tx
	}
	free := func(name string, want bool) {
		t.Helper()
		tx := begin()
		defer tx.Rollback()
		if ok, err := pgstore.TryLockTx(ctx, tx, name); ok != want || err != nil {
			t.Errorf("%s is free: %v, %v; want %v", name, ok, err, want)
		}
	}
	tx := begin()
	lock := func(name string) {
		t.Helper()
		if err := pgstore.LockTx(ctx, tx, name); err != nil {
			t.Fatal(err)
		}
	}
	lock("before")
	sqltest.Exec(t, tx, "SAVEPOINT one")
	lock("before")
	lock("inside")
	sqltest.Exec(t, tx, "RELEASE one")
	sqltest.Exec(t, tx, "SAVEPOINT two")
	lock("undone")
	sqltest.Exec(t, tx, "ROLLBACK TO two")
	free("before", false)
	free("inside", false)
	free("undone", true)
}
