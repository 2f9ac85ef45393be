package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
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
			a, b := openMySQL(t, m.URL()), openMySQL(t, m.URL())
			ctx := within(t, 2*patience)
			var held []driver.Ref
			for i := range 5 {
				c := mutex(fmt.Sprint(i), time.Minute)
				enter(t, a, c, driver.Holding)
				held = append(held, ref(c))
			}
			// Two wait, so that some of it is done by rule, in transactions.
			w, next := mutex("0", time.Minute), mutex("0", time.Minute)
			enter(t, b, w, driver.Waiting)
			enter(t, b, next, driver.Waiting)
			time.Sleep(1500 * time.Millisecond) // wait_timeout
			a.Renew(ctx, held, func(i int, st driver.Status, err error) {
				if err != nil || st.State != driver.Holding {
					t.Errorf("renew %d: %v, %v", i, st.State, err)
				}
			})
			leaver := driver.Claim{Name: held[0].Name, ID: held[0].ID}
			for _, c := range []driver.Claim{w, next} {
				if was := leaves(t, a, leaver); was != driver.Holding {
					t.Errorf("it was %v", was)
				}
				if st, err := get(ctx, b, c); err != nil || st.State != driver.Holding {
					t.Fatalf("get: %v, %v", st.State, err)
				}
				leaver = c
			}
			leaves(t, b, next)
			if ids := claimIDs(t, a, "0"); len(ids) != 0 {
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
	_, err = s.CompareAndSwap(within(t, patience), driver.Record{Name: "r", Value: make([]byte, 100_000)})
	if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("%v", err)
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
			s, err := mysqlstore.New(openDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl"), &mysqlstore.Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := mutex("n", 10*time.Minute)
			enter(t, s, c, driver.Holding)
			ctx := within(t, patience)
			full := false
			for range 200 {
				w := mutex("n", 10*time.Minute)
				w.Owner.Label = strings.Repeat("x", 100)
				st, err := s.Enter(ctx, w)
				if err != nil {
					if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "max_allowed_packet") {
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
			if was := leaves(t, s, c); was != driver.Holding {
				t.Errorf("the holder left, %v", was)
			}
		})
	}
}
