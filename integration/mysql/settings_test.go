package mysql

import (
	"errors"
	"fmt"
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

// A server whose settings make statements mean something else, or not last, and
// that hangs up on who is idle: a store that was opened by URL does not care.
func TestMySQLSettings(t *testing.T) {
	for _, args := range []string{
		"--sql-mode=ORACLE,EMPTY_STRING_IS_NULL --sql-safe-updates=1 --max-join-size=1 --wait-timeout=1",
		"--completion-type=CHAIN", "--completion-type=RELEASE", "--sql-mode=",
	} {
		t.Run(args, func(t *testing.T) {
			m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: strings.Fields(args)})
			a, b := sqltest.OpenMySQL(t, m.URL()), sqltest.OpenMySQL(t, m.URL())
			ctx := await.Context(t)
			var held []driver.Ref
			for i := range 5 {
				c := storetest.Mutex(fmt.Sprint(i), time.Minute)
				storetest.Enter(t, a, c, driver.Holding)
				held = append(held, storetest.Ref(c))
			}
			// Two wait, so that some of it is done by rule, in transactions.
			w, next := storetest.Mutex("0", time.Minute), storetest.Mutex("0", time.Minute)
			storetest.Enter(t, b, w, driver.Waiting)
			storetest.Enter(t, b, next, driver.Waiting)
			time.Sleep(1500 * time.Millisecond) // wait_timeout
			a.Renew(ctx, held, func(i int, st driver.Status, err error) {
				if err != nil || st.State != driver.Holding {
					t.Errorf("renew %d: %v, %v", i, st.State, err)
				}
			})
			leaver := driver.Claim{Name: held[0].Name, ID: held[0].ID}
			for _, c := range []driver.Claim{w, next} {
				if was := storetest.Leave(t, a, leaver); was != driver.Holding {
					t.Errorf("it was %v", was)
				}
				if st, err := storetest.Get(ctx, b, c); err != nil || st.State != driver.Holding {
					t.Fatalf("get: %v, %v", st.State, err)
				}
				leaver = c
			}
			storetest.Leave(t, b, next)
			if ids := storetest.IDs(t, a, "0"); len(ids) != 0 {
				t.Errorf("in the queue are %v", ids)
			}
			listed := 0
			for _, err := range b.List(ctx, "") {
				if err != nil {
					t.Fatal(err)
				}
				listed++
			}
			if listed != 4 {
				t.Errorf("%d are listed", listed)
			}
			if _, err := a.CompareAndSwap(ctx, driver.Record{Name: "r", Value: []byte{}}); err != nil {
				t.Fatal(err)
			}
			if r, err := b.Load(ctx, "r"); err != nil || r.Version == 0 || r.Value == nil {
				t.Errorf("an empty value is %+v, %v", r, err)
			}
		})
	}
}

// What is larger than the server takes is said so, and not tried again.
func TestMySQLPacket(t *testing.T) {
	m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{"--max-allowed-packet=16384"}})
	s, err := mysql.Open(m.URL()+"?create=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.CompareAndSwap(await.Context(t), driver.Record{Name: "r", Value: make([]byte, 100_000)})
	if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("%v", err)
	}
}

// Renewals that together are more than the server takes by one statement are as
// many as it takes.
func TestMySQLRenewsByBytes(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: []string{"--max-allowed-packet=16384"}})
	s := sqltest.OpenMySQL(t, m.URL())
	var rs []driver.Ref
	for i := range 30 {
		for k := range 10 {
			c := storetest.Mutex(fmt.Sprintf("%d/%s", i, strings.Repeat("n", 300)), time.Hour)
			c.Owner.Label = strings.Repeat("x", 100)
			storetest.Enter(t, s, c, []driver.State{driver.Holding, driver.Waiting}[min(k, 1)])
			if k == 0 {
				rs = append(rs, storetest.Ref(c))
			}
		}
	}
	renew := func(large int) {
		t.Helper()
		s.Renew(await.Context(t), rs, func(i int, st driver.Status, err error) {
			if i == large && driver.IsPermanent(err) {
				return
			}
			if err != nil || st.State != driver.Holding {
				t.Errorf("renew %d: %v, %v", i, st.State, err)
			}
		})
	}
	renew(-1)
	// One that is too much for the statement that renews many, even alone.
	db := sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl")
	sqltest.Exec(t, db, `UPDATE pawl_queues SET body = REPLACE(body, '"owner":{', CONCAT('"owner":{"host":"', REPEAT('h', 900), '",')), stamp = stamp + 1 WHERE name LIKE '0/%'`)
	renew(0)
	n := 0
	for q, err := range s.List(await.Context(t), "") {
		if n++; err != nil || len(q.Claims) != 10 {
			t.Errorf("%d claims are listed, %v", len(q.Claims), err)
		}
	}
	if n != len(rs) {
		t.Errorf("%d names are listed", n)
	}
}

// A queue that grows beyond what the server puts together keeps its claims, also
// where the server forgives what it cannot do.
func TestMySQLFullQueue(t *testing.T) {
	t.Parallel()
	for mode, args := range map[string][]string{
		"strict":  {"--max-allowed-packet=16384"},
		"lenient": {"--max-allowed-packet=16384", "--sql-mode="},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := servers.RunMariaDB(t, servers.MariaDBOptions{Args: args})
			s, err := mysqlstore.New(sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl"), &mysqlstore.Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := storetest.Mutex("n", 10*time.Minute)
			storetest.Enter(t, s, c, driver.Holding)
			ctx := await.Context(t)
			full := false
			for range 200 {
				w := storetest.Mutex("n", 10*time.Minute)
				w.Owner.Label = strings.Repeat("x", 100)
				st, err := s.Enter(ctx, w)
				if err != nil {
					if !errors.Is(err, driver.ErrFull) {
						t.Errorf("%v", err)
					}
					full = true
					break
				}
				if st.State != driver.Waiting {
					t.Fatalf("%v beside the holder", st.State)
				}
			}
			if !full {
				t.Error("it never was too much")
			}
			q, err := s.Inspect(ctx, "n")
			if err != nil || len(q.Claims) < 10 || q.Claims[0].ID != c.ID || q.Claims[0].State != driver.Holding {
				t.Errorf("%d claims are left, %v", len(q.Claims), err)
			}
			if was := storetest.Leave(t, s, c); was != driver.Holding {
				t.Errorf("the holder left, %v", was)
			}
		})
	}
}
