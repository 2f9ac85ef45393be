package sql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// What is wrong with one name costs its own claims only: a hundred others that
// are renewed with it are, while it goes on.
func TestSQLSpoiledName(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		var rs []driver.Ref
		var claims []driver.Claim
		for i := range 101 {
			c := storetest.Mutex(fmt.Sprintf("n%03d", i), time.Hour)
			storetest.Enter(t, s, c, driver.Holding)
			rs, claims = append(rs, storetest.Ref(c)), append(claims, c)
		}
		const bad = 50
		var healthy string
		row := fmt.Sprintf(" WHERE name = '%s'", rs[bad].Name)
		if err := db.QueryRowContext(await.Context(t), "SELECT body FROM "+e.queues+row).Scan(&healthy); err != nil {
			t.Fatal(err)
		}
		others := func(t *testing.T, ctx context.Context) (reported <-chan int, its <-chan error) {
			ours, theirs := make(chan int, 1), make(chan error, 1)
			var mu sync.Mutex
			n := 0
			go s.Renew(ctx, rs, func(i int, st driver.Status, err error) {
				if i == bad {
					theirs <- err
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil || st.State != driver.Holding {
					t.Errorf("renewed %d: %v, %v", i, st.State, err)
				}
				if n++; n == len(rs)-1 {
					ours <- n
				}
			})
			return ours, theirs
		}
		write := func(body string) {
			sqltest.Exec(t, db, fmt.Sprintf("UPDATE %s SET body = '%s', since = 0, stamp = stamp + 1%s", e.queues, body, row))
		}
		for _, tt := range []struct{ name, body, want string }{
			{"Unreadable", `{"last":`, "cannot be read"},
			{"Newer", strings.Replace(healthy, `"limit":`, `"of a later version":true,"limit":`, 1), "later version"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				write(tt.body)
				defer func() {
					sqltest.Exec(t, db, "DELETE FROM "+e.queues+row)
					storetest.Enter(t, s, claims[bad], driver.Holding)
				}()
				n, err := others(t, await.Context(t))
				await.Value(t, "the others are renewed", n)
				if err := await.Value(t, "the name's own error", err); !driver.IsPermanent(err) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), rs[bad].Name) {
					t.Errorf("its own error is %v", err)
				}
			})
		}
		t.Run("Locked", func(t *testing.T) {
			ctx, cancel := context.WithCancel(await.Context(t))
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			sqltest.Exec(t, tx, "UPDATE "+e.queues+" SET asked = asked"+row)
			// Through connections that would wait for a lock for as long as it takes.
			slow := e.db(t)
			if e.queues == "pawl_queues" {
				slow = sqltest.OpenDB(t, "mysql", "root@tcp("+e.Addr()+")/pawl?innodb_lock_wait_timeout=10000")
			}
			s = newSQL(t, e, slow)
			n, its := others(t, ctx)
			await.Value(t, "the others are renewed", n) // while it is locked
			tx.Rollback()
			await.Value(t, "and so is this, or there is an error", its)
		})
	})
}

// A queue that has become as large as it may takes no further claim, and says so.
// Everything else goes on with it.
func TestSQLFullQueue(t *testing.T) {
	onSQL(t, func(t *testing.T, e *sqlEngine) {
		s, db := e.store(t), e.db(t)
		h := storetest.Mutex("n", time.Hour)
		storetest.Enter(t, s, h, driver.Holding)
		q := queue.Queue{Kind: driver.KindMutex, Limit: 1}
		now := time.Now().UnixMicro()
		for i := range 24_000 {
			c := queue.Claim{ID: fmt.Sprintf("waiting-%d", i), Owner: driver.Owner{Label: strings.Repeat("x", 100)}, Units: 1, Arrived: now, Expires: now + time.Hour.Microseconds()}
			if i == 0 {
				c.ID, c.Granted, c.Token, c.Alone = h.ID, now, now, true
			}
			q.Claims = append(q.Claims, c)
		}
		write := func(n int) {
			part := q
			part.Claims = part.Claims[:n]
			text, err := json.Marshal(&part)
			if err != nil {
				t.Fatal(err)
			}
			sqltest.Exec(t, db, fmt.Sprintf("UPDATE %s SET body = '%s', last = %d, since = 0, stamp = stamp + 1 WHERE name = 'n'", e.queues, text, now))
		}
		ctx := await.Context(t)
		write(10_000)
		storetest.Enter(t, s, storetest.Mutex("n", time.Hour), driver.Waiting)
		write(24_000)
		for range 2 { // it may be known to be busy or not
			if _, err := s.Enter(ctx, storetest.Mutex("n", time.Hour)); !errors.Is(err, driver.ErrFull) {
				t.Errorf("one more: %v", err)
			}
		}
		if st, err := s.Enter(ctx, h); err != nil || st.State != driver.Holding {
			t.Errorf("entered again: %v, %v", st.State, err)
		}
		if st, err := storetest.Renew(ctx, s, h); err != nil || st.State != driver.Holding {
			t.Errorf("renewed: %v, %v", st.State, err)
		}
		if was, err := s.Leave(ctx, storetest.Ref(h)); err != nil || was != driver.Holding {
			t.Errorf("left: %v, %v", was, err)
		}
		next := driver.Claim{Name: "n", ID: "waiting-1", TTL: time.Hour}
		if st, err := storetest.Renew(ctx, s, next); err != nil || st.State != driver.Holding {
			t.Errorf("the next one: %v, %v", st.State, err)
		}
	})
}
