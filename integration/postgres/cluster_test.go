package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/sqltest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// Clients that know both servers count while the primary is cut off from its
// synchronous replica, then killed, and the replica becomes the primary.
func TestPostgresFailover(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{Args: []string{"-c", "synchronous_standby_names=*"}})
	link := servers.RunProxy(t, p.Addr())
	replica := p.RunReplica(t, link.Addr(), servers.PostgresOptions{})
	both := []string{p.URLAt(p.Addr() + "," + replica.Addr()), p.URLAt(replica.Addr() + "," + p.Addr())}
	cr := crew.New(t)
	for i := range 4 {
		params := []string{"", "&target_session_attrs=read-write"}[i/2]
		cr.Hire(fmt.Sprint(i), sqltest.OpenPostgres(t, both[i%2]+params, nil), crew.TTL)
	}
	cr.GoOn(3)
	alone := sqltest.OpenPostgres(t, replica.URL(), nil)
	if _, err := alone.Enter(await.Context(t), storetest.Mutex("count", time.Minute)); err == nil || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("a replica alone: %v", err)
	}
	cr.Hold("steady", cr.Client(sqltest.OpenPostgres(t, both[0], nil), crew.SteadyTTL), func(lease *pawl.Lease) {
		link.Swallow(false, true)
		ctx, cancel := context.WithTimeout(cr.Ctx, 500*time.Millisecond)
		defer cancel()
		if err := lease.Extend(ctx, 0); err == nil {
			t.Error("renewed, and the replica has not heard of it")
		}
		p.Kill()
		link.Cut()
		if err := replica.Promote(); err != nil {
			t.Error(err)
		}
		cr.Extended(lease)
	})
	cr.GoOn(3)
	storetest.Enter(t, alone, storetest.Mutex("free", time.Minute), driver.Holding)
	cr.End()
}

// What docs/GUARANTEES.md says of an asynchronous replica: a grant that it has not
// heard of is lost. Then two hold, the tokens rise all the same, and the first is
// told with its next renewal.
func TestPostgresAsynchronousFailover(t *testing.T) {
	t.Parallel()
	p := servers.RunPostgres(t, servers.PostgresOptions{})
	link := servers.RunProxy(t, p.Addr())
	replica := p.RunReplica(t, link.Addr(), servers.PostgresOptions{})
	s := sqltest.OpenPostgres(t, p.URLAt(p.Addr()+","+replica.Addr()), nil)
	last := storetest.Enter(t, s, storetest.Mutex("before", time.Minute), driver.Holding)
	db := sqltest.OpenDB(t, "pgx", replica.URL())
	await.That(t, "the replica has the tables", func() bool {
		var n int
		err := db.QueryRowContext(await.Context(t), "SELECT count(*) FROM pawl.queues WHERE last >= $1", last.Token).Scan(&n)
		return err == nil && n == 1
	})

	link.Swallow(false, true)
	h, w := storetest.Mutex("n", time.Minute), storetest.Mutex("n", time.Minute)
	first := storetest.Enter(t, s, h, driver.Holding)
	p.Kill()
	link.Cut()
	if err := replica.Promote(); err != nil {
		t.Fatal(err)
	}
	second := storetest.Enter(t, sqltest.OpenPostgres(t, replica.URL(), nil), w, driver.Holding)
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if st := storetest.Renewed(t, s, h); st.State != driver.Gone {
		t.Errorf("the first holder: %+v", st)
	}
}
