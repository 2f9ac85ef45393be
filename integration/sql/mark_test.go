package sql

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
)

// ahead opens a store for which the database's clock is ahead.
func (e *sqlEngine) ahead(t testing.TB, by time.Duration) driver.Store {
	t.Helper()
	var db *sql.DB
	if e.queues == "pawl_queues" {
		db = sqltest.OpenDB(t, "mysql", fmt.Sprintf("root@tcp(%s)/pawl?timestamp=%d", e.Addr(), time.Now().Add(by).Unix()))
	} else {
		schema := fmt.Sprintf("ahead%d", int(by.Seconds()))
		plain := e.db(t)
		sqltest.Exec(t, plain, "CREATE SCHEMA "+schema)
		sqltest.Exec(t, plain, fmt.Sprintf("CREATE FUNCTION %s.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''%d s'''", schema, int(by.Seconds())))
		db = sqltest.OpenDB(t, "pgx", e.URLAt(e.Addr())+"&search_path="+schema+",pg_catalog")
	}
	return newSQL(t, e, db)
}

// A clock that was ahead for a while, and was set back after the names that were
// used meanwhile were forgotten: tokens and versions rise all the same.
func TestSQLClockSetBack(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		early, later := e.ahead(t, time.Hour), e.ahead(t, time.Hour+5*time.Minute)
		whole := storetest.Mutex("whole", time.Minute)
		part := driver.Claim{Name: "part", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 3, TTL: time.Minute}
		dead := storetest.Mutex("dead", time.Minute) // it never leaves
		tokens := make(map[string]int64)
		for _, c := range []driver.Claim{whole, part, dead} {
			tokens[c.Name] = storetest.Enter(t, early, c, driver.Holding).Token
			if c.Name != "dead" {
				storetest.Leave(t, early, c)
			}
		}
		r, err := early.CompareAndSwap(await.Context(t), driver.Record{Name: "record", Value: []byte("x"), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if ahead := time.UnixMicro(min(tokens["whole"], r.Version)); time.Until(ahead) < 30*time.Minute {
			t.Fatalf("the clock is not ahead: %v", ahead)
		}
		db := e.db(t)
		await.That(t, "all are forgotten", func() bool {
			x := storetest.Mutex("x", time.Minute)
			storetest.Enter(t, later, x, driver.Holding)
			storetest.Leave(t, later, x)
			var n int
			query := fmt.Sprintf("SELECT (SELECT count(*) FROM %s WHERE name IN ('whole', 'part', 'dead')) + (SELECT count(*) FROM %s WHERE name = 'record')", e.queues, e.records)
			if err := db.QueryRowContext(await.Context(t), query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 0
		})
		for _, c := range []driver.Claim{whole, part, dead} {
			before := tokens[c.Name]
			for range 3 {
				c.ID = driver.NewID()
				token := storetest.Enter(t, good, c, driver.Holding).Token
				if token <= before {
					t.Errorf("%s: token %d after %d", c.Name, token, before)
				}
				before = token
				storetest.Leave(t, good, c)
			}
		}
		again, err := good.CompareAndSwap(await.Context(t), driver.Record{Name: "record", Value: []byte("x")})
		if err != nil || again.Version <= r.Version {
			t.Errorf("version %d after %d, %v", again.Version, r.Version, err)
		}
		// What is ahead of the clock does not stay for ever.
		await.That(t, "what is ahead is forgotten, too", func() bool {
			x := storetest.Mutex("y", time.Minute)
			storetest.Enter(t, good, x, driver.Holding)
			storetest.Leave(t, good, x)
			var n int
			query := "SELECT count(*) FROM " + e.queues + " WHERE name IN ('whole', 'part', 'dead')"
			if err := db.QueryRowContext(await.Context(t), query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 0
		})
	})
}

// Who has seen that a name has no row does not make one when the name was used,
// and forgotten, since.
func TestSQLForgottenBetween(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		good := e.store(t)
		storetest.Enter(t, good, storetest.Mutex("tables", time.Minute), driver.Holding)
		early, db := e.ahead(t, time.Hour), e.db(t)
		l, s := newLossy(t, e)
		c := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 3, Limit: 3, TTL: time.Minute}
		var token int64
		l.meddle(func(query string) {
			if token == 0 && strings.Contains(query, "INSERT") {
				token = storetest.Enter(t, early, c, driver.Holding).Token
				storetest.Leave(t, early, c)
				e.forget(t, db, "n")
			}
		})
		if err := s.SetLimit(await.Context(t), "n", driver.KindSemaphore, 3, 4); err != nil {
			t.Fatal(err)
		}
		l.meddle(nil)
		c.ID = driver.NewID()
		if got := storetest.Enter(t, good, c, driver.Holding).Token; token == 0 || got <= token {
			t.Errorf("token %d after %d", got, token)
		}
	})
}

// A mark that no clock can have led to, however it came about, keeps no new name
// or record from being used.
func TestSQLMarkOutOfRange(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		ctx := await.Context(t)
		storetest.Enter(t, s, storetest.Mutex("tables", time.Minute), driver.Holding)
		sqltest.Exec(t, db, "INSERT INTO "+e.records+" (name, version, value, expires) VALUES ('', 1, NULL, 0)")
		for i, mark := range []int64{math.MaxInt64, math.MinInt64 + 1} {
			sqltest.Exec(t, db, fmt.Sprintf("UPDATE %s SET version = %d WHERE name = ''", e.records, mark))
			name := fmt.Sprint("n", i)
			token := storetest.Enter(t, s, storetest.Mutex(name, time.Minute), driver.Holding).Token
			if far := time.Until(time.UnixMicro(token)).Abs(); far > time.Hour {
				t.Errorf("mark %d: token %d, %v from now", mark, token, far)
			}
			if err := s.SetLimit(ctx, name+" limit", driver.KindSemaphore, 3, 4); err != nil {
				t.Errorf("mark %d: %v", mark, err)
			}
			if _, err := s.CompareAndSwap(ctx, driver.Record{Name: name, Value: []byte("x"), TTL: time.Minute}); err != nil {
				t.Errorf("mark %d: %v", mark, err)
			}
		}
	})
}
