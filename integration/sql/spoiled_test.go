package sql

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/internal/await"
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
			n, its := others(t, ctx)
			await.Value(t, "the others are renewed", n) // while it is locked
			tx.Rollback()
			await.Value(t, "and so is this, or there is an error", its)
		})
	})
}
