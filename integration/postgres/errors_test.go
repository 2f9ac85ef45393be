package postgres

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
	"github.com/pawl-go/pawl/pgstore"
)

// What passes does not end a Lock that waits: it goes on when it has passed.
func TestPostgresPassingErrors(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "max_connections=30"}})
	admin := sqltest.OpenDB(t, "pgx", p.URL())
	sqltest.Exec(t, admin, "CREATE DATABASE app")
	at := strings.Replace(p.URL(), "/postgres?", "/app?", 1)
	if err := sqltest.OpenPostgres(t, at, nil).CreateSchema(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, code string
		begin      func(t *testing.T) (end func())
	}{
		{"TooManyClients", "53300", func(t *testing.T) func() {
			db := sqltest.OpenDB(t, "pgx", p.URL())
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
		}},
		{"NoConnectionsAllowed", "55000", func(t *testing.T) func() {
			sqltest.Exec(t, admin, "ALTER DATABASE app WITH ALLOW_CONNECTIONS false")
			return func() { sqltest.Exec(t, admin, "ALTER DATABASE app WITH ALLOW_CONNECTIONS true") }
		}},
		{"ReadOnly", "25006", func(t *testing.T) func() {
			sqltest.Exec(t, admin, "ALTER DATABASE app SET default_transaction_read_only = on")
			return func() { sqltest.Exec(t, admin, "ALTER DATABASE app SET default_transaction_read_only = off") }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sqltest.Exec(t, admin, "SELECT 1") // it has a connection
			end := sync.OnceFunc(tt.begin(t))
			defer end()
			s := sqltest.OpenPostgres(t, at, &pgstore.Options{})
			_, err := s.Enter(await.Context(t), storetest.Mutex("n", time.Minute))
			if err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), tt.code) {
				t.Fatalf("permanent %v: %v, want %s", driver.IsPermanent(err), err, tt.code)
			}
			s = sqltest.OpenPostgres(t, at, &pgstore.Options{}) // with connections of its own, made later
			c := pawl.New(s, nil)
			defer c.Close(context.WithoutCancel(t.Context()))
			failed := make(chan struct{})
			once := sync.OnceFunc(func() { close(failed) })
			locked := make(chan error, 1)
			go func() {
				o := pawl.Options{Observer: func(e pawl.Event) {
					if e.Err != nil {
						once()
					}
				}}
				lease, err := pawl.New(s, &o).Mutex("n").Lock(await.Context(t))
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
	// What ends a statement, or its connection, may have ended it before or after it
	// was carried out.
	for function, code := range map[string]string{"pg_cancel_backend": "57014", "pg_terminate_backend": "57P01"} {
		t.Run(function, func(t *testing.T) {
			s := sqltest.OpenPostgres(t, at, &pgstore.Options{})
			h := storetest.Mutex(function, time.Minute)
			storetest.Enter(t, s, h, driver.Holding)
			db := sqltest.OpenDB(t, "pgx", at)
			tx, err := db.BeginTx(await.Context(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			sqltest.Exec(t, tx, fmt.Sprintf("UPDATE pawl.queues SET asked = asked WHERE name = '%s'", function))
			left := make(chan error, 1)
			go func() {
				_, err := s.Leave(await.Context(t), storetest.Ref(h))
				left <- err
			}()
			await.That(t, "it waits for the row, and is ended", func() bool {
				var n int
				query := "SELECT count(" + function + "(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'app'"
				if err := db.QueryRowContext(await.Context(t), query).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n > 0
			})
			if err := await.Value(t, "it is told", left); err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), code) {
				t.Errorf("permanent %v: %v, want %s", driver.IsPermanent(err), err, code)
			}
		})
	}
	t.Run("Serializable", func(t *testing.T) { // where the database undoes what met another
		var wg sync.WaitGroup
		for range 4 {
			s := sqltest.OpenPostgres(t, at+"&default_transaction_isolation=serializable", &pgstore.Options{})
			wg.Go(func() {
				for range 20 {
					c := driver.Claim{Name: "sem", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 100, TTL: time.Minute}
					if _, err := s.Enter(await.Context(t), c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if ids := storetest.IDs(t, sqltest.OpenPostgres(t, at, nil), "sem"); len(ids) != 80 {
			t.Errorf("%d claims are there, of 80", len(ids))
		}
	})
}
