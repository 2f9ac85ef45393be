package mysql

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
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/mysqlstore/mysql"
)

// Tables come one after the other there. Who finds them without their version
// finishes them: somebody may have died in between.
func TestMySQLUnfinishedTables(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	for _, stop := range []string{"DELETE FROM pawl_version", "DROP TABLE pawl_version", "DROP TABLE pawl_version, pawl_records"} {
		t.Run(stop, func(t *testing.T) {
			ctx := await.Context(t)
			if err := sqltest.OpenMySQL(t, m.URL()).CreateSchema(ctx); err != nil {
				t.Fatal(err)
			}
			sqltest.Exec(t, sqltest.OpenDB(t, "mysql", "root@tcp("+m.Addr()+")/pawl"), stop)
			plain, err := mysql.Open(m.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			if _, err := plain.Enter(ctx, storetest.Mutex("a", time.Minute)); err == nil || !strings.Contains(err.Error(), "pawl schema mysql") {
				t.Errorf("who may not create them: %v", err)
			}
			s := sqltest.OpenMySQL(t, m.URL())
			c := storetest.Mutex(stop, time.Minute)
			storetest.Enter(t, s, c, driver.Holding)
			if _, err := plain.Leave(ctx, storetest.Ref(c)); err != nil {
				t.Errorf("when they are there: %v", err)
			}
		})
	}
}

// Many that create the tables at once do not see each other's half.
func TestMySQLCreateAtOnce(t *testing.T) {
	t.Parallel()
	m := servers.RunMariaDB(t, servers.MariaDBOptions{})
	for round := range 10 {
		var wg sync.WaitGroup
		for i := range 8 {
			s, err := mysql.Open(fmt.Sprintf("%s?create=true&prefix=round%d_", m.URL(), round), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
				defer cancel()
				if _, err := s.Enter(ctx, storetest.Mutex(fmt.Sprint(i), time.Minute)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
